"""The plan's prediction against the memory that real trials measure, and what happens where there is no plan."""

import pytest

from gpudoc.progress import SILENT
from gpudoc.tune.search.foresight import foresee
from gpudoc.tune.search.journal import Journal
from gpudoc.tune.search.runner import WorkloadRunner
from gpudoc.tune.search.session import Session
from gpudoc.tune.trial.launcher import Launcher, Where
from gpudoc.tune.trial.messages import End, Trial, Variant
from gpudoc.units import MIB
from tests.tune.planted import write_workload

LIMIT = 640 * MIB


@pytest.fixture
def session(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    opened = []

    def start(**changes):
        opened.append(Launcher(str(write_workload(tmp_path, **changes))))
        return Session(
            runner=WorkloadRunner(launcher=opened[-1], where=Where(device="cpu", limit_bytes=LIMIT, cap=100_000)),
            journal=Journal(None),
            progress=SILENT,
            budget_s=1e6,
            variant=Variant(allocator="exact"),
        )

    yield start
    for launcher in opened:
        launcher.close()


@pytest.mark.parametrize(
    "net",
    [{"depth": 3, "spread": 4096}, pytest.param({"width": 4096, "hidden": 8}, marks=pytest.mark.slow)],
    ids=["deep", "samples"],
)
def test_the_predicted_memory_per_sample_is_what_a_calibration_measures(session, net):
    """Also where it is the samples that take it: those that are read, beside the batch that is made of them."""
    search = session(net=net, data={"count": 100_000})
    line = foresee(search, cap=100_000)
    points = search.calibrate(100_000).points
    first, last = points[-2], points[-1]
    measured = (last.peak_bytes - first.peak_bytes) / (last.batch - first.batch)
    assert line.bytes_per_sample == pytest.approx(measured, rel=0.1)
    assert line.largest(LIMIT) == line.batch
    assert [trial.request.kind for trial in search.journal.trials] == ["plan", "calibrate"]


def test_a_step_that_cannot_be_traced_has_no_prediction_and_the_journal_says_why(session):
    search = session(fault="dynamic")
    assert foresee(search, cap=512) is None
    (trial,) = search.journal.trials
    assert (trial.end, trial.points) == (End.FITS, ())
    assert "size depends on the data" in trial.detail
    assert "planted_work.py" in trial.detail


def test_a_plan_that_takes_too_long_or_dies_is_done_without():
    class Machine:
        def __init__(self):
            self.said, self.end, self.patience = [], End.HANG, 0.0

        def run(self, request, where):
            self.patience = where.silence_s
            return Trial(request=request, end=self.end, detail="no sign of life for 15 s")

        def say(self, text):
            self.said.append(text)

        def advance(self, done, total, text):
            pass

    machine = Machine()
    for machine.end in (End.HANG, End.SIGNAL, End.USER_ERROR):
        where = Where(device="cpu", limit_bytes=LIMIT)
        search = Session(
            runner=WorkloadRunner(launcher=machine, where=where), journal=Journal(None), progress=machine, budget_s=60.0
        )
        assert foresee(search, cap=10) is None
        assert "no sign of life" in machine.said[-1]
    assert machine.patience == pytest.approx(0.15 * 60.0)
