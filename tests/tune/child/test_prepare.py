"""Whether a process may be forked after it imported a user's code: asked of a process that did."""

import json
import os
import subprocess
import sys

import pytest
import torch

from gpudoc.tune.child.prepare import prepare
from tests.train.support import write_workload as train_workload
from tests.tune.planted import write_workload

REASON = "from gpudoc.tune.child.prepare import prepare, why_not_fork as why; "
REASON += "print('reason:', why(prepare('cfg.yaml').num_threads))"


def reason(folder, at_import="", environment=None):
    """Why a process that prepared a workload must not be forked, when its module does this while it is imported."""
    write_workload(folder)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {REASON}"],
        cwd=folder,
        env={**(environment or os.environ), "PLANT_AT_IMPORT": at_import},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().removeprefix("reason:").strip()


AT_IMPORT = {
    "nothing": "",
    "a thread": "import threading\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "no sums": "kept = torch.ones\nhere = os.getpid()\n"
    "torch.ones = lambda *_: 1 / 0 if os.getpid() != here else kept(*_)",
}
# what is imported beforehand is imported once, and each prepares for itself
EACH = """
import json, torch
from gpudoc.tune.child.prepare import import_beforehand, prepare, why_not_fork as why
import_beforehand()
for name, os.environ["PLANT_AT_IMPORT"] in json.loads(sys.argv[1]).items():
    if not (child := os.fork()):
        print(json.dumps({name: why(prepare("cfg.yaml").num_threads)}), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def reasons(tmp_path_factory):
    """Why a process must not be forked, by what its user's module does while it is imported."""
    folder = tmp_path_factory.mktemp("prepared")
    write_workload(folder)
    code = f"import os, sys; sys.path[:] = {sys.path!r}\n{EACH}"
    command = [sys.executable, "-c", code, json.dumps(AT_IMPORT)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return {name: why for line in done.stdout.splitlines() for name, why in json.loads(line).items()}


def test_a_process_that_only_imported_may_be_forked(reasons):
    assert reasons["nothing"] == ""


def test_a_thread_that_runs_since_the_import_forbids_it(reasons):
    assert "a thread was started" in reasons["a thread"]


def test_a_fork_that_cannot_compute_forbids_it(reasons):
    assert "cannot compute" in reasons["no sums"]


def test_what_was_prepared_leaves_the_environment_as_it_was(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    write_workload(tmp_path)
    threads = torch.get_num_threads()
    prepared = prepare(str(tmp_path / "cfg.yaml"))
    torch.set_num_threads(threads)
    assert prepared.samples.count == 512
    assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ


@pytest.mark.standin
def test_preparing_leaves_cuda_alone_even_when_the_module_asks_for_it(tmp_path, standin):
    at_import = "AVAILABLE = torch.cuda.is_available()"
    assert reason(tmp_path, at_import, standin().environment) == ""


@pytest.mark.standin
@pytest.mark.parametrize("at_import", ["torch.ones(1, device='cuda')", "torch.cuda.get_device_name()"])
def test_a_module_that_uses_the_gpu_while_it_is_imported_forbids_it(tmp_path, standin, at_import):
    assert "CUDA was initialised" in reason(tmp_path, at_import, standin().environment)


TRAINS = """
import sys
from gpudoc.tune.child.prepare import import_beforehand
import_beforehand()
before = set(sys.modules)
from gpudoc.cli.app import run
assert run("train --device cpu --model cfg.yaml --profile off --no-preflight --steps 4 --json".split()) == 0
print(*{name for name in sys.modules if name.startswith("gpudoc.train.")} - before, file=sys.stderr)
"""


def test_a_trial_has_all_of_the_trainer_in_memory_but_what_starts_ranks(tmp_path):
    train_workload(tmp_path)
    line = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{TRAINS}"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    starters = {f"gpudoc.train.start.{name}" for name in ("launch", "place", "run_key", "slurm")}
    assert set(done.stderr.splitlines()[-1].split()) == starters
