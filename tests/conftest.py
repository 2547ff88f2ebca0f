"""Every test has profile folders and a home of its own, so that what a user keeps is neither read nor written."""

import gc
import itertools
import os
import resource
import signal
from pathlib import Path

import pytest

from tests.standin.gpus import standin  # noqa: F401

# two test processes on two cores: threads that wait by spinning (OpenMP's default) make each other's steps five times
# slower; read once, when torch is loaded
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# hardly anybody sets it, and a file or pipe that is not written at once is another matter
os.environ.pop("PYTHONUNBUFFERED", None)

# a shell that starts the suite in the background leaves Ctrl+C ignored, nohup leaves the hangup ignored, and every
# child would inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# the files that take longest come first: a worker takes a file at a time, and at the end the other one waits for it
LONGEST = (
    "test_flow.py",
    "fix/test_first_step.py",
    "tune/child/test_rank.py",
    "script/test_search.py",
    "fleet/test_allocation.py",
    "tune/test_run.py",
    "fix/test_run.py",
    "fix/test_rewrites.py",
    "test_pattern_growth.py",
    "plan/test_tracing.py",
    "doctor/test_fault_matrix.py",
    "train/watch/test_watching.py",
    "train/start/test_place.py",
    "script/test_trial.py",
    "tune/trial/test_launcher.py",
    "facts/live/test_job.py",
    "train/loop/test_rescue.py",
    "fix/test_control_runs.py",
    "fix/test_looks.py",
    "fix/test_table.py",
    "cli/test_demo.py",
    "train/start/test_launch.py",
    "tune/search/test_scaling.py",
    "cli/test_watching.py",
    "cli/test_bench.py",
    "train/loop/test_crash.py",
    "train/loop/test_saving.py",
    "train/test_stop.py",
    "tune/test_faults.py",
    "tune/loader/test_session.py",
    "train/ranks/test_distributed.py",
    "train/ranks/test_fsdp.py",
    "train/state/test_shards.py",
    "train/start/test_prove.py",
    "tune/child/test_scaling.py",
    "bench/cases/test_all_reduce.py",
    "bench/test_run.py",
    "script/inside/_gpudoc_inside/test_loaders.py",
    "script/inside/_gpudoc_inside/test_steps.py",
    "tune/child/test_prepare.py",
    "tune/loader/test_search.py",
    "cli/test_running.py",
    "cli/test_surroundings.py",
    "test_bad_input.py",
    "process/test_loader_workers.py",
    "facts/live/test_session.py",
    "facts/test_collect.py",
    "tune/search/test_foresight.py",
    "tune/search/test_feeder.py",
    "tune/search/test_stages.py",
    "tune/trial/test_fork_client.py",
    "train/data/test_stream.py",
    "facts/test_nvidia.py",
    "facts/test_nvml.py",
    "tune/child/test_probe.py",
    "train/loop/test_boundary.py",
    # over the stand-in
    "standin/test_tune.py",
    "standin/test_train.py",
    "standin/test_fleet.py",
    "standin/test_rescue.py",
    "standin/test_contexts.py",
    "standin/test_bench.py",
    "standin/test_script.py",
    "standin/test_sharing.py",
    "standin/test_hangs.py",
    "standin/test_gpu_check.py",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is imported and collected stays to the end; looking through it for garbage again and again takes seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items):
    place = {str(Path(__file__).parent / name): number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(str(item.path), len(place)))


@pytest.fixture(scope="session")
def homes(tmp_path_factory):
    """Names for folders that nobody has yet; a numbered one of pytest's own would be sought among all there are."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def own_home(homes, monkeypatch):
    home = next(homes)
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.delenv("GPUDOC_PROFILE_DIR", raising=False)
    # torch writes it once something is compiled in this process
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    return home


@pytest.fixture(autouse=True)
def no_limit_is_left():
    """Code that trains in this process limits its memory; what is started later would inherit that."""
    yield
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
