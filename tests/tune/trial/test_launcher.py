"""Real processes: how trials end, that nothing is left behind, that ranks cannot wait for the dead."""

import contextlib
import os
from pathlib import Path

import psutil
import pytest

from gpudoc.errors import GpudocError
from gpudoc.process.cpu_load import CpuLoad
from gpudoc.profile.model import Loader
from gpudoc.tune.trial import launcher as launcher_file
from gpudoc.tune.trial.deadline import Deadline, TimeUpError
from gpudoc.tune.trial.fork_client import ForkServerDiedError, trial_error
from gpudoc.tune.trial.launcher import Launcher, RunningTrial, Where
from gpudoc.tune.trial.messages import End, TrialRequest, Variant
from gpudoc.tune.trial.wire import Envelope, TrialStage
from gpudoc.units import GIB, MIB
from tests.tune.planted import write_workload

CPU = Where(device="cpu", limit_bytes=1 * GIB, silence_s=20.0)


def descendants():
    return [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


# each Python process of a trial, forked ones too, says that it was there: others use shared memory meanwhile
HOOK = """
import os
def note():
    with open({notes!r}, "a") as stream:
        stream.write(f"{{os.getpid()}}\\n")
note()
os.register_at_fork(after_in_child=note)
"""


@contextlib.contextmanager
def launchers(folder):
    """Opens launchers of workloads in `folder`; at the end nothing of them is left."""
    hook, notes = folder / "hook", folder / "pids"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK.format(notes=str(notes)))
    opened, before = [], descendants()

    def start(**changes):
        opened.append(Launcher(str(write_workload(folder, **changes))))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PYTHONPATH", str(hook), prepend=os.pathsep)
        yield start
        for launcher in opened:
            launcher.close()
    assert [process for process in descendants() if process not in before] == []
    own = set(notes.read_text().split()) if opened else set()
    assert [path for path in Path("/dev/shm").glob("torch_*") if path.name.split("_")[1] in own] == []


@pytest.fixture
def launch(tmp_path):
    with launchers(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def standing(tmp_path_factory):
    """One launcher for all tests that need no workload of their own: each batch of ENDS fails as it says, and so does
    every loader worker."""
    with launchers(tmp_path_factory.mktemp("standing")) as start:
        faults = {str(batch): fault for batch, (fault, _) in ENDS.items()}
        yield start(net={"faults": faults}, data={"die_at": 0})


def fit(batch, **changes):
    return TrialRequest(kind="fit", batches=(batch,), **changes)


ENDS = {
    16: ("raise", End.USER_ERROR),
    17: ("sigkill", End.SIGNAL),
    18: ("sigbus", End.OOM_SHM),
    19: ("segfault", End.SIGNAL),
    20: ("int32", End.INDEX_LIMIT),
    21: ("hang", End.HANG),
    22: ("orphan", End.FITS),
}


def test_what_others_did_counts_from_the_first_timed_step(monkeypatch, tmp_path):
    seen = iter([0.0, 1.0])

    class Planted:
        def __init__(self):
            self.others = next(seen)

        def read(self):
            return CpuLoad(other_cpus=self.others, other_share=0.5, share=1.0, stolen_share=None)

    monkeypatch.setattr(launcher_file, "LoadMeter", Planted)
    running = RunningTrial(None, TrialRequest(kind="variant", batches=(8,)), CPU, 1, tmp_path / "log")
    for stage in ("build", "first steps", "speed", "speed"):
        running._take(Envelope(trial=1, rank=0, event=TrialStage(stage=stage)))
    trial = running._finish((End.FITS, ""))
    assert (trial.measured["other_cpus"], trial.is_disturbed) == (1.0, True)


def test_faults_are_told_apart_and_the_next_trial_still_runs(standing):
    launcher = standing
    below = launcher.run(fit(15), CPU)
    assert below.end is End.FITS, below
    assert below.points[0].peak_bytes > 50 * MIB
    trials = {batch: launcher.run(fit(batch), CPU) for batch in range(16, 21)}
    assert {batch: trial.end for batch, trial in trials.items()} == {batch: ENDS[batch][1] for batch in trials}
    assert all((trial.failed_batch, trial.stage) == (batch, "train") for batch, trial in trials.items())
    message = trial_error(trials[16]).message
    assert "planted: batch 16 is refused" in message
    assert "planted_work.py" in message
    assert "SIGSEGV" in trials[19].detail
    assert launcher.run(fit(4), CPU).fits


def test_the_own_work_of_a_trial_is_not_taken_for_that_of_others(standing):
    # what ends within 50 ms is too short to be counted: these steps take several times as long on any CPU
    trial = standing.run(TrialRequest(kind="steady", batches=(15,), steps=400), CPU)
    assert trial.end is End.FITS, trial
    assert trial.measured["busy_share"] > 0
    assert trial.measured["other_cpus"] < os.cpu_count()


def test_a_hang_in_backward_ends_at_the_deadline(standing):
    trial = standing.run(fit(21), Where(device="cpu", limit_bytes=GIB, silence_s=2.0))
    assert trial.end is End.HANG
    assert "in train at batch 21" in trial.detail


@pytest.mark.parametrize(
    ("bound", "told"),
    [
        ({"most_silence_s": 2.0}, "no sign of life"),
        ({"deadline": Deadline(budget_s=0.0)}, "the budget ended in"),
    ],
    ids=["as silent as the time allows", "the end of the budget"],
)
def test_a_trial_lives_no_longer_than_the_budget_allows_whatever_it_may_need(standing, bound, told):
    trial = standing.run(fit(21), Where(device="cpu", limit_bytes=GIB, silence_s=3600.0, **bound))
    assert trial.end is End.TIME_UP
    assert told in trial.detail
    assert standing.run(fit(4), CPU).fits


def test_a_workload_that_is_not_imported_in_time_is_said_with_a_longer_budget(tmp_path, monkeypatch):
    monkeypatch.setenv("PLANT_SLOW_IMPORT", "3600")
    monkeypatch.syspath_prepend(str(tmp_path))
    source = str(write_workload(tmp_path))
    deadline = Deadline(budget_s=4.0)
    with Launcher(source, deadline=deadline) as launcher, pytest.raises(TimeUpError, match="not imported") as caught:
        launcher.inspect(Where(device="cpu", limit_bytes=GIB, deadline=deadline))
    assert caught.value.hint == "--budget 20s"


def test_the_memory_limit_is_real_and_repeats(launch):
    launcher = launch(net={"width": 4096}, data={"count": 100_000})
    exact = Variant(allocator="exact")
    peaks = {launcher.run(fit(500, variant=exact), CPU).points[0].peak_bytes for _ in range(3)}
    assert max(peaks) - min(peaks) <= MIB
    need = max(peaks)
    assert launcher.run(fit(500, variant=exact), Where(device="cpu", limit_bytes=need + 2 * MIB)).fits
    below = launcher.run(fit(500, variant=exact), Where(device="cpu", limit_bytes=need - 8 * MIB))
    assert below.end is End.OOM_HOST


@pytest.mark.slow
def test_what_comes_later_is_part_of_the_steady_script(launch):
    launcher = launch(net={"faults": {"24": "eval", "25": "partial later", "26": "leak", str(512 % 25): "partial"}})
    ends = {batch: launcher.run(TrialRequest(kind="steady", batches=(batch,), steps=16), CPU) for batch in (24, 25, 26)}
    assert [(t.end, t.stage) for t in ends.values()] == [
        (End.OOM_HOST, "eval"),
        (End.OOM_HOST, "partial batch"),
        (End.LEAK, "steady"),
    ]
    assert ends[26].measured["growth_bytes_per_step"] == pytest.approx(MIB, rel=0.2)


def test_the_longest_sample_is_in_the_first_steps(launch):
    trial = launch(fault="longest", at=1, data={"lengths": True}).run(fit(24), CPU)
    assert (trial.end, trial.stage) == (End.OOM_HOST, "train")


def test_a_resting_trial_goes_on_with_the_script_or_is_killed(standing):
    launcher = standing
    first = launcher.start(fit(8, stay=True), CPU)
    assert first.collect(until_waiting=True) is None
    assert first.snapshot().points[0].batch == 8
    second = launcher.start(fit(9, stay=True), CPU)
    assert second.collect(until_waiting=True) is None
    second.kill()
    first.go_on(3)
    ended = first.collect()
    assert ended.fits
    assert ended.measured["settled"] == 1.0


def test_a_killed_loader_worker_is_named(standing):
    request = TrialRequest(kind="joint", batches=(8,), feed=Loader(num_workers=1), seconds_per_batch=1.0)
    assert standing.run(request, CPU).end is End.WORKER_DIED


def test_orphans_in_another_session_are_found_and_killed(standing):
    standing.inspect(CPU)
    before = descendants()
    assert standing.run(fit(22), CPU).fits
    assert descendants() == before


def test_inspection_names_model_data_and_machine(standing):
    launcher = standing
    found = launcher.inspect(CPU)
    assert found.num_samples == 512
    assert found.workload.inputs == "float32[256], int64[]"
    assert found.hardware.device == "cpu"
    assert 50 * MIB < found.baseline_bytes < GIB
    assert launcher.no_fork == ""


def test_expected_fork_servers_are_all_made_before_one_is_waited_for_and_ready_before_a_trial(monkeypatch):
    seen = []

    class Server:
        def __init__(self, source, variant, *_, **__):
            self.allocator = variant.allocator
            seen.append(f"{self.allocator} made")

        @property
        def ready(self):
            seen.append(f"{self.allocator} ready")

        def close(self):
            seen.append(f"{self.allocator} closed")

    monkeypatch.setattr(launcher_file, "ForkServerProcess", Server)
    with Launcher("quickstart", (Variant(), Variant(allocator="exact"))) as launcher:
        launcher.warm(Variant())
        assert seen == ["default made", "exact made", "default ready", "exact ready"]
        launcher.warm(Variant(allocator="exact"))
        assert sum(" made" in one for one in seen) == 2
    assert seen[-2:] == ["default closed", "exact closed"]


def test_the_first_that_is_expected_looks_at_the_workload_and_no_other_is_started(monkeypatch):
    made = []

    class Server:
        def __init__(self, source, variant, *_, **__):
            made.append(variant)

        @property
        def ready(self):
            raise ForkServerDiedError("enough")

        def close(self):
            pass

    monkeypatch.setattr(launcher_file, "ForkServerProcess", Server)
    with Launcher("quickstart", (Variant(allocator="exact"),)) as launcher:
        with pytest.raises(GpudocError, match="enough"):
            launcher.inspect(CPU)
        with pytest.raises(ForkServerDiedError):
            _ = launcher.no_fork
    assert {variant.allocator for variant in made} == {"exact"}


def test_a_fork_server_that_dies_while_it_imports_is_replaced_once_and_then_said(monkeypatch):
    made = []

    class Server:
        def __init__(self, source, variant, *_, **__):
            made.append(variant)

        @property
        def ready(self):
            raise ForkServerDiedError("killed by SIGKILL")

        def close(self):
            pass

    monkeypatch.setattr(launcher_file, "ForkServerProcess", Server)
    told = pytest.raises(GpudocError, match="the trials cannot be started: killed by SIGKILL")
    with Launcher("quickstart") as launcher, told:
        launcher.start(fit(1), CPU)
    assert len(made) == 2


def test_a_template_that_dies_is_a_result_and_is_replaced(standing):
    launcher = standing
    running = launcher.start(fit(4, stay=True), CPU)
    assert running.collect(until_waiting=True) is None
    for process in psutil.Process().children():
        process.kill()
    assert running.collect().end is End.SIGNAL
    assert launcher.run(fit(4), CPU).fits


@pytest.mark.slow
def test_trials_that_cannot_be_forked_import_for_themselves_and_end_as_forked_ones_do(launch, monkeypatch):
    monkeypatch.setenv(
        "PLANT_AT_IMPORT", "import threading; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    )
    others = set(descendants())
    launcher = launch(net={"faults": {"16": "raise", "17": "sigkill"}}, fault="orphan", at=4)
    launcher.inspect(CPU)
    assert "thread" in launcher.no_fork
    trials = [launcher.run(fit(batch), CPU) for batch in (15, 16, 17)]
    assert [trial.end for trial in trials] == [End.FITS, End.USER_ERROR, End.SIGNAL]
    assert [trial.how for trial in trials] == ["exec"] * 3
    assert "planted: batch 16 is refused" in trial_error(trials[1]).message
    assert launcher.run(fit(8, ranks=2), CPU).fits
    resting = launcher.start(fit(8, stay=True), CPU)
    assert resting.collect(until_waiting=True) is None
    resting.kill()
    assert len(set(descendants()) - others) == 1


def test_several_ranks_run_and_one_failure_ends_all(standing):
    trial = standing.run(TrialRequest(kind="fit", batches=(8,), ranks=2), CPU)
    assert trial.fits, trial
    assert standing.run(TrialRequest(kind="fit", batches=(17,), ranks=2), CPU).end is End.SIGNAL
