"""Several ranks in one trial: whose end counts, what limit they live under, and that a search over them ends."""

import json
import os
import subprocess
import sys

import psutil
import pytest
import yaml

from gpudoc.errors import GpudocError
from gpudoc.profile.model import Loader
from gpudoc.train.ranks.distributed import AbandonedError, PeerLostError, talking
from gpudoc.train.ranks.pulse import VOTE, Pulse
from gpudoc.tune.child.rank import num_threads, own_failure, place_of
from gpudoc.tune.trial.launcher import Launcher, Where
from gpudoc.tune.trial.messages import End, TrialRequest
from gpudoc.tune.trial.wire import RankPlace
from gpudoc.units import GIB, MIB
from tests.tune.planted import write_workload

CPU = Where(device="cpu", limit_bytes=1 * GIB, silence_s=60.0)


def living(processes):
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture(scope="module")
def launcher(tmp_path_factory):
    """Batches 124 and 125 fail on rank 1."""
    faults = {"124": "rank 1", "125": "rank 1 killed"}
    before = living(psutil.Process().children(recursive=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        opened = Launcher(str(write_workload(tmp_path_factory.mktemp("ranks"), net={"faults": faults})))
        yield opened
        opened.close()
    assert [p for p in living(psutil.Process().children(recursive=True)) if p not in before] == []


def test_each_rank_has_its_gpu_and_all_share_the_cpu():
    place = RankPlace(device="cuda:0", limit_bytes=None)
    assert [place_of(place, rank, 3).device for rank in range(3)] == ["cuda:0", "cuda:1", "cuda:2"]
    assert place_of(place.model_copy(update={"device": "cuda:2"}), 0, 1).device == "cuda:2"
    assert place_of(place.model_copy(update={"device": "cpu"}), 1, 2).device == "cpu"
    assert place_of(place, 1, 2).rank == 1


def test_ranks_share_the_threads_unless_the_request_says_how_many():
    assert num_threads(TrialRequest(kind="fit", batches=(1,), ranks=3), 8) == 2
    assert num_threads(TrialRequest(kind="fit", batches=(1,), ranks=3), 2) == 1
    assert num_threads(TrialRequest(kind="scaling", batches=(1,), threads=4), 8) == 4


def test_a_rank_that_only_lost_its_peer_says_nothing_of_the_cause():
    def lost(cause):
        problem = PeerLostError("another rank has ended")
        problem.__cause__ = cause
        return problem

    mine = GpudocError("no such file")
    assert own_failure(mine) is mine
    assert own_failure(lost(RuntimeError("Connection closed by peer"))) is None
    memory = RuntimeError("DefaultCPUAllocator: can't allocate memory")
    assert own_failure(lost(memory)) is memory


def test_memory_that_runs_out_in_an_exchange_is_what_the_rank_has_to_tell():
    memory = RuntimeError("DefaultCPUAllocator: can't allocate memory")
    with pytest.raises(AbandonedError) as raised, talking(Pulse(), VOTE):
        raise memory
    assert own_failure(raised.value) is memory


def test_the_rank_that_failed_names_the_end_and_the_others_are_killed(launcher):
    out_of_memory = launcher.run(TrialRequest(kind="fit", batches=(124,), ranks=2), CPU)
    assert (out_of_memory.end, out_of_memory.failed_batch) == (End.OOM_HOST, 124), out_of_memory
    killed = launcher.run(TrialRequest(kind="fit", batches=(125,), ranks=2), CPU)
    assert killed.end is End.SIGNAL, killed
    assert launcher.run(TrialRequest(kind="fit", batches=(8,), ranks=2), CPU).fits


@pytest.mark.parametrize(
    "request_",
    [
        TrialRequest(kind="calibrate", batches=(64,), ranks=2),
        pytest.param(TrialRequest(kind="steady", batches=(24,), ranks=2, steps=6), marks=pytest.mark.slow),
        TrialRequest(kind="speed", batches=(4, 8), ranks=2, seconds_per_batch=0.2),
        TrialRequest(kind="joint", batches=(8,), ranks=2, feed=Loader(num_workers=1), seconds_per_batch=0.2),
    ],
    ids=lambda request: request.kind,
)
def test_ranks_run_as_many_steps_as_each_other_whatever_their_clocks_say(launcher, request_):
    trial = launcher.run(request_, Where(device="cpu", limit_bytes=GIB, silence_s=60.0, cap=64))
    assert trial.fits, trial
    assert trial.points[-1].batch in (*request_.batches, 64)


@pytest.mark.slow
def test_a_resting_trial_of_two_ranks_goes_on_together(launcher):
    running = launcher.start(TrialRequest(kind="fit", batches=(8,), ranks=2, stay=True), CPU)
    assert running.collect(until_waiting=True) is None
    running.go_on(3)
    ended = running.collect()
    assert ended.fits, ended
    assert ended.measured["settled"] == 1.0


def gpudoc(folder, *arguments, code=0):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_DATA_HOME": str(folder / "data")}
    environment["PYTHONPATH"] = os.pathsep.join([os.getcwd(), environment.get("PYTHONPATH", "")])  # noqa: PTH109
    command = [sys.executable, "-m", "gpudoc", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_the_search_with_two_ranks_finds_what_the_worst_one_fits_and_train_takes_it(tmp_path):
    """Rank 1 fails from batch 40 on, where memory would allow thousands; the limit itself is tested below."""
    write_workload(tmp_path, fault="rank 1", at=40, data={"count": 4000})
    out = gpudoc(
        tmp_path, "tune", "--model", "cfg.yaml", "--device", "cpu", "--gpus", "2", "--memory-limit", "640MiB",
        "--only", "batch", "--goal", "largest", "--budget", "10m", "--json",
    ).stdout  # fmt: skip
    profile = json.loads(out)["profile"]
    assert profile["evidence"]["largest_batch"] == 39
    assert profile["hardware"]["count"] == 2
    assert profile["settings"]["micro_batch"] == 39
    assert any(row["end"] == "oom_host" and row["batch"] == 40 for row in profile["evidence"]["trials"])
    assert any(line.startswith("2 ranks: every trial ran 2 processes") for line in profile["why"])
    train = ("train", "--model", "cfg.yaml", "--device", "cpu", "--memory-limit", "640MiB", "--steps", "2", "--plain")
    two = gpudoc(tmp_path, *train, "--gpus", "2", "--run-dir", "two")
    assert "-x2-" in two.stdout + two.stderr
    assert "number of devices" not in two.stdout + two.stderr
    one = gpudoc(tmp_path, *train, "--run-dir", "one")
    assert "number of devices 2 there, 1 here; --gpus 2 would use it" in one.stdout + one.stderr


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_each_rank_lives_under_the_limit(tmp_path):
    """A sample takes 512 KiB; memory runs out in the exchange of gradients as well as in the step itself."""
    write_workload(tmp_path, net={"width": 65_536, "hidden": 8}, data={"count": 2000})
    tune = ("tune", "--model", "cfg.yaml", "--device", "cpu", "--gpus", "2", "--memory-limit", "560MiB", "--plain")
    told = gpudoc(tmp_path, *tune, "--only", "batch", "--goal", "largest", "--budget", "2m", "--out", "profile.yaml")
    assert "560 MiB for each of 2 ranks" in told.stderr
    evidence = yaml.safe_load((tmp_path / "profile.yaml").read_text())["evidence"]
    tried = [row for row in evidence["trials"] if row["kind"] in ("fit", "steady")]
    largest = evidence["largest_batch"]
    # the two certificates may be as far apart as 2 MiB
    assert 50 < largest < min(row["batch"] for row in tried if not row["fits"]) <= largest + 8
    assert {row["end"] for row in tried} == {"fits", "oom_host"}
    assert all(row["peak_bytes"] <= 560 * MIB for row in tried if row["fits"])
    train = ("train", "--model", "cfg.yaml", "--device", "cpu", "--profile", "profile.yaml", "--gpus", "2", "--plain")
    gpudoc(tmp_path, *train, "--memory-limit", "560MiB", "--epochs", "1", "--run-dir", "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["samples"] == 2000
