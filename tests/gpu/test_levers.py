"""What only a GPU can show of each lever: it runs there, and its first steps learn what the plain ones learn."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from gpudoc.process.compiler import can_compile
from gpudoc.progress import SILENT
from gpudoc.tune.model.losses import Reference, agree, explain_losses
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.runner import WorkloadRunner
from gpudoc.tune.search.session import Session
from gpudoc.tune.search.variants import LEVERS
from gpudoc.tune.trial.launcher import Launcher, Where
from gpudoc.tune.trial.messages import TrialRequest, Variant
from gpudoc.units import GIB
from tests.standin.gpus import real_gpu
from tests.tune.planted import write_workload

pytestmark = [pytest.mark.gpu, real_gpu("it has no cuDNN, no Triton and no graphs")]
NET = {"depth": 4, "spread": 64}
SHOWN = [lever for lever in LEVERS if lever.to_show]


def why_not(lever, capability, has_torchao):
    """Why the lever cannot run on this card or in this environment, '' where it can."""
    if lever.changes.get("optimizer_state") == "8bit" and not has_torchao:
        return "torchao is not installed"
    if lever.changes.get("matmul_precision") == "high" and capability < (8, 0):
        return "this card is too old for it"
    compiles = lever.changes.get("compile") or lever.changes.get("optimizer_state") == "8bit"
    return "torch.compile cannot run here" if compiles and not can_compile("cuda", capability) else ""


@pytest.fixture
def steps(tmp_path):
    """The trial of a variant's first steps, timed."""
    data = {"count": 4096}
    with Launcher(str(write_workload(tmp_path, net=NET, data=data))) as launcher:
        session = Session(
            runner=WorkloadRunner(
                launcher=launcher, where=Where(device="cuda:0", limit_bytes=8 * GIB, silence_s=300.0)
            ),
            journal=Journal(None),
            progress=SILENT,
            budget_s=1e6,
        )
        yield lambda **changes: session.attempt(
            TrialRequest(kind="variant", batches=(64,), variant=Variant(**changes), seconds_per_batch=1.0)
        )


@pytest.mark.parametrize("lever", SHOWN, ids=lambda lever: lever.name)
def test_the_lever_runs_and_its_losses_are_those_of_the_plain_step(lever, steps):
    absent = why_not(lever, torch.cuda.get_device_capability(), find_spec("torchao") is not None)
    if absent:
        pytest.skip(absent)
    plain, tried = steps(), steps(**lever.changes)
    assert tried.fits, tried.detail
    found = Reference(plain.losses).compare(tried.losses, lever.tolerance)
    assert agree(found), explain_losses(found)
    assert tried.points[-1].samples_per_s > 0


def test_replayed_graphs_survive_accumulation_and_evaluation(tmp_path, monkeypatch):
    from gpudoc.tune.child.samples import collect_samples
    from gpudoc.tune.child.training import Trainee
    from gpudoc.workload.build import load_workload

    monkeypatch.syspath_prepend(str(tmp_path))
    workload = load_workload(str(write_workload(tmp_path, net=NET)))
    batch = collect_samples(workload).typical(16)

    def losses(**changes):
        trainee, found = Trainee(workload, Variant(**changes), torch.device("cuda")), []
        for _ in range(6):
            found += [trainee.train([batch, batch]), trainee.evaluate(batch), trainee.evaluate(batch)]
        return tuple(found)

    found = Reference(losses()).compare(losses(compile=True, compile_mode="reduce-overhead"), 0.01)
    assert agree(found), explain_losses(found)
