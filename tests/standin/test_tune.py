"""`gpudoc tune` as a whole on stand-in GPUs: training lives with what it finds, and only trials hold a context."""

from __future__ import annotations

import json
import subprocess
import sys

import psutil
import pytest
import yaml

from gpudoc.progress import SILENT
from gpudoc.tune.model.losses import BOUNDS, Reference, agree, explain_losses
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.runner import WorkloadRunner
from gpudoc.tune.search.session import Session, why_rejected
from gpudoc.tune.trial.launcher import Launcher, Where
from gpudoc.tune.trial.messages import End, TrialRequest, Variant

pytestmark = pytest.mark.standin

# memory does not depend on the numbers, and without them a step costs nothing
QUICK = {"math_ops": "1e5"}
SMALL = {**QUICK, "memory": "700M"}
# where losses are compared they must be numbers: without arithmetic they are what lay in memory, at times NaN
LEARNS = {"math_ops": "1e10"}
NET = '''
import os
import torch
from torch import nn

exec(os.environ.get("AT_IMPORT", ""))


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        if not 0 <= index < 4000:
            raise IndexError(index)
        return torch.full((256,), 0.01 * (index % 97)), torch.tensor(index % 10)


class Block(nn.Module):
    """Keeps 1 MiB per sample for its backward, with few weights."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(256, 256)

    def forward(self, x):
        return x + self.inner(x).unsqueeze(1).expand(-1, 1024, -1).tanh().mean(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.last = nn.Sequential(Block(), Block()), nn.Linear(256, 10)

    def forward(self, x):
        return self.last(self.blocks(x))
'''
# more than any of these searches takes: what they find does not depend on how fast the machine is
ENOUGH = ("--budget", "1h")
LARGEST = ("--goal", "largest", "--only", "batch", *ENOUGH)


@pytest.fixture
def net(tmp_path):
    """A net and a data set of the user's own; the config's file name."""
    (tmp_path / "mynet.py").write_text(NET)
    config = {
        "model": {"target": "mynet:Net"},
        "data": {"target": "mynet:Data"},
        "loss": {"target": "torch.nn:CrossEntropyLoss"},
        "optimizer": {"target": "torch.optim:AdamW", "args": {"lr": 1e-3}},
        "train": {"reference_batch": 8},
    }
    (tmp_path / "cfg.yaml").write_text(yaml.safe_dump(config))
    return "cfg.yaml"


def tune(gpus, model, *arguments, code=0, **environment):
    """The document that a search ends with."""
    done = gpus.gpudoc("tune", "--model", model, "--json", "--fresh", "--out", "tuned.yaml", *arguments, **environment)
    assert done.returncode == code, done.stderr + done.stdout
    assert holders(gpus) == set()
    return json.loads(done.stdout)


def holders(gpus):
    """The processes that live and have a context; a killed one stays in the table until the next asks."""
    return {pid for pid, _, _ in gpus.holders() if psutil.pid_exists(pid)}


def journal(gpus):
    """The trials of the last search, as they were written down."""
    newest = max((gpus.home.glob("data/gpudoc/journals/*.jsonl")), key=lambda path: path.stat().st_mtime)
    return [json.loads(line) for line in newest.read_text().splitlines()[1:]]


def rescues(gpus, model, batch, *arguments):
    """The rescues of a short training at a micro batch: an epoch's last partial batch is in it."""
    steps = str(4000 // batch + 3)
    command = ("train", "--model", model, "--batch-size", str(batch), "--steps", steps, "--profile", "off")
    run = f"run-{batch}"
    done = gpus.forked(*command, "--precision", "fp32", "--no-preflight", "--run-dir", run, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads((gpus.home / run / "summary.json").read_text())["rescues"]


@pytest.fixture
def gpus_here(standin, monkeypatch, tmp_path):
    """Stand-in GPUs beside which profiles and journals are kept in the test's own folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return standin


def test_the_largest_batch_lives_in_training_and_the_next_one_does_not(gpus_here, net):
    gpus = gpus_here(**SMALL)
    evidence = tune(gpus, net, *LARGEST)["profile"]["evidence"]
    largest = evidence["largest_batch"]
    assert rescues(gpus, net, largest) == []
    assert rescues(gpus, net, largest + 1) != []
    assert sum(trial["request"]["kind"] == "fit" for trial in journal(gpus)) <= 10


# a CPU takes a second for a step of the images: their losses are what lay in memory
@pytest.mark.parametrize(("model", "settings"), [("quickstart", LEARNS), ("images", QUICK)])
def test_the_built_in_workloads_are_tuned_from_end_to_end(gpus_here, model, settings):
    gpus = gpus_here(**settings)
    drawn = gpus.run(sys.executable, "-m", "gpudoc.workload.images", "images-data")
    assert drawn.returncode == 0, drawn.stderr
    profile = tune(gpus, model, *ENOUGH)["profile"]
    evidence = profile["evidence"]
    assert profile["hardware"]["device"] == "cuda"
    assert evidence["largest_batch"] >= profile["settings"]["micro_batch"]
    # whether memory is planned or calibrated
    kinds = {trial["kind"] for trial in evidence["trials"]}
    assert kinds >= {"default", "variant"}
    assert kinds & {"fit", "calibrate"}
    # what is too large for memory is found on the way; nothing fails otherwise, and nothing up to what was found
    failed = [(row["kind"], row["batch"], row["end"]) for row in evidence["trials"] if not row["fits"]]
    odd = [row for row in failed if not (End(row[2]).is_memory and row[1] > evidence["largest_batch"])]
    assert odd == []


def fits(source, *batches, limit_bytes):
    """(how it was started, how it ended, its peak) of a trial at each batch."""
    where = Where(device="cuda:0", limit_bytes=limit_bytes)
    with Launcher(source) as launcher:
        trials = [launcher.run(TrialRequest(kind="fit", batches=(b,), steps=3), where) for b in batches]
    return [(trial.how, trial.end, [point.peak_bytes for point in trial.points]) for trial in trials]


def test_trials_that_are_forked_and_trials_that_import_anew_find_the_same(net, tmp_path, monkeypatch, standin):
    for name, value in standin(**QUICK).environment.items():
        monkeypatch.setenv(name, value)
    source, found = str(tmp_path / net), {}
    # the first only asks whether there is a GPU; the second initialises CUDA, after which no fork can use it
    for at_import in ("torch.cuda.is_available()", "torch.cuda.get_device_name()"):
        monkeypatch.setenv("AT_IMPORT", at_import)
        trials = fits(source, 10, 16, 40, limit_bytes=200 << 20)
        found[trials[0][0]] = [(end, peaks) for _, end, peaks in trials]
    assert found["fork"] == found["exec"]
    assert [end for end, _ in found["exec"]] == [End.FITS, End.FITS, End.OOM_DEVICE]


def test_neither_the_command_nor_the_process_that_starts_trials_holds_a_context(gpus_here, net):
    gpus = gpus_here(**SMALL)
    arguments = (sys.executable, "-m", "gpudoc", "tune", "--model", net, "--fresh", *LARGEST)
    environment = gpus.environment | {"XDG_DATA_HOME": str(gpus.home / "data")}
    search = subprocess.Popen(arguments, cwd=gpus.home, env=environment, stderr=subprocess.DEVNULL)
    above, holding = {search.pid}, set()
    while search.poll() is None:
        holding |= holders(gpus)
        above |= {child.pid for child in psutil.Process(search.pid).children()}
    assert search.returncode == 0
    assert holding
    assert not holding & above


def test_the_limit_holds_for_tuning_and_for_training(gpus_here, net):
    gpus = gpus_here(**QUICK)
    evidence = tune(gpus, net, *LARGEST, "--memory-limit", "200MiB")["profile"]["evidence"]
    assert evidence["memory_limit_bytes"] == 200 * 2**20
    limit = ("--memory-limit", "200MiB")
    assert rescues(gpus, net, evidence["largest_batch"], *limit) == []
    assert rescues(gpus, net, evidence["largest_batch"] + 1, *limit) != []


def test_a_prediction_for_another_gpu_touches_none(gpus_here, net):
    here = gpus_here(**QUICK)
    told = here.gpudoc("tune", "--model", net, "--target", "RTX 3090,2GiB", "--json")
    assert told.returncode == 0, told.stderr
    assert here.holders() == []
    without = gpus_here(gpus=0).gpudoc("tune", "--model", net, "--target", "RTX 3090,2GiB", "--json")
    assert json.loads(told.stdout) == json.loads(without.stdout)


def test_two_gpus_are_tuned_together_and_their_scaling_is_measured(gpus_here, net):
    gpus = gpus_here(gpus=2, memory="2G", **LEARNS)
    profile = tune(gpus, net, "--gpus", "2", "--only", "batch,speed", *ENOUGH)["profile"]
    assert profile["hardware"]["count"] == 2
    assert profile["evidence"]["largest_batch"] > 1
    done = gpus.gpudoc("tune", "--model", net, "--gpus", "2", "--only", "scaling", *ENOUGH, "--json")
    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)["scaling"]["points"]
    assert [(point["ranks"], point["end"]) for point in points] == [(1, "fits"), (2, "fits")]
    assert holders(gpus) == set()


FILL = """
import torch
kept = []
try:
    while True:
        kept.append(torch.empty(8 << 20, dtype=torch.uint8, device='cuda:1'))
except torch.OutOfMemoryError:
    print('full', flush=True)
input()
"""


def test_a_gpu_that_others_fill_is_said_to_be_full_and_by_whom(gpus_here, net):
    gpus = gpus_here(gpus=2, memory="1G", **QUICK)
    pipe = subprocess.PIPE
    other = subprocess.Popen([sys.executable, "-c", FILL], env=gpus.environment, stdin=pipe, stdout=pipe)
    assert other.stdout.readline() == b"full\n"
    # CUDA's first GPU is NVML's second here
    arguments = ("tune", "--model", net, "--device", "cuda:0", "--fresh", *LARGEST)
    done = gpus.gpudoc(*arguments, CUDA_VISIBLE_DEVICES="1,0")
    other.communicate(b"\n")
    assert done.returncode == 1, done.stderr
    assert "cuda:0 has too little free memory to begin" in done.stderr
    assert f"pid {other.pid}" in done.stderr


def test_code_that_says_cuda_runs_on_the_gpu_that_was_asked_for(gpus_here, net):
    gpus = gpus_here(gpus=2, memory="2G", **QUICK)
    module = gpus.home / "mynet.py"
    module.write_text(
        module.read_text() + "\n\nclass Mine(Net):\n    def forward(self, x):\n"
        "        return super().forward(x) + torch.ones(1, device='cuda')\n"
    )
    config = yaml.safe_load((gpus.home / net).read_text())
    config["model"]["target"] = "mynet:Mine"
    (gpus.home / net).write_text(yaml.safe_dump(config))
    profile = tune(gpus, net, *LARGEST, "--max-batch", "16", "--device", "cuda:1")["profile"]
    assert profile["evidence"]["largest_batch"] == 16


def test_a_gpu_that_the_compiler_does_not_know_rejects_compiling_in_one_line(net, tmp_path, monkeypatch, standin):
    for name, value in standin(cc="6.1", **QUICK).environment.items():
        monkeypatch.setenv(name, value)
    where = Where(device="cuda:0", limit_bytes=None)
    request = TrialRequest(kind="variant", batches=(8,), variant=Variant(compile=True))
    with Launcher(str(tmp_path / net)) as launcher:
        session = Session(
            runner=WorkloadRunner(launcher=launcher, where=where),
            journal=Journal(tmp_path / "j"),
            progress=SILENT,
            budget_s=1e4,
        )
        trial = session.attempt(request)
    assert trial.end is End.USER_ERROR
    assert why_rejected(trial).startswith("rejected, it failed in first steps: ")
    assert "too old to be supported by the triton GPU compiler" in why_rejected(trial)
    assert "\n" not in why_rejected(trial)


def test_levers_of_a_gpu_run_with_the_losses_of_the_plain_step(net, tmp_path, monkeypatch, standin):
    """What a GPU made of memory can show: torch's own code takes each lever, and trains the same with it."""
    for name, value in standin(cc="8.0").environment.items():
        monkeypatch.setenv(name, value)
    alike = {"fp32": [{"allocator": "expandable"}, {"fused": False}, {"cudnn_benchmark": True}]}
    alike |= {"tf32": [{"matmul_precision": "high"}], "bf16": [{"precision": "bf16"}]}

    def first(**changes):
        request = TrialRequest(kind="variant", batches=(8,), variant=Variant(**changes), seconds_per_batch=0.01)
        return launcher.run(request, where)

    where = Where(device="cuda:0", limit_bytes=None)
    with Launcher(str(tmp_path / net)) as launcher:
        reference = Reference(first().losses)
        found = {
            (*changes,): reference.compare(first(**changes).losses, BOUNDS[bound])
            for bound, levers in alike.items()
            for changes in levers
        }
    assert len(reference.losses) >= 3
    assert {lever: explain_losses(losses) for lever, losses in found.items() if not agree(losses)} == {}
    # the same numbers in the same order, but for the format
    assert found["allocator",].difference == 0.0
    assert found["precision",].difference > 0


def test_a_training_applies_the_levers_of_its_profile(standin, net):
    gpus = standin(cc="8.0", **QUICK)
    settings = {"precision": "fp32", "micro_batch": 8, "matmul_precision": "high", "cudnn_benchmark": True}
    profile = {"schema": "gpudoc.profile.v1", "hardware": {"device": "cuda"}, "settings": settings}
    (gpus.home / "levers.yaml").write_text(yaml.safe_dump(profile))
    module = gpus.home / "mynet.py"
    told = "print('told', torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark)"
    module.write_text(
        module.read_text().replace("        return self.last(", f"        {told}\n        return self.last(")
    )
    trained = gpus.forked("train", "--model", net, "--profile", "levers.yaml", "--steps", "2", "--no-preflight")
    assert trained.returncode == 0, trained.stderr
    assert "told high True" in trained.stdout
