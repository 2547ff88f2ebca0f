import os
import subprocess
import sys

import pytest

from gpudoc.doctor import spinning
from gpudoc.doctor.spinning import Crowd, bound_spinning, find_spinning, may_sleep
from gpudoc.process.cpu_load import CpuLoad
from gpudoc.process.openmp import SPINS, SPINS_IN_A_CROWD, WAITING, OpenMp, own_openmp

GOMP = OpenMp("libgomp")


def crowd(threads=2, cpus=2.0, others=1.0, openmp=GOMP):
    return Crowd(threads=threads, cpus=cpus, other_cpus=others, openmp=openmp)


@pytest.mark.parametrize(
    ("seen", "spins"),
    [
        pytest.param(crowd(), True, id="one busy loop on two CPUs"),
        pytest.param(crowd(others=0.2), False, id="nobody beside it"),
        pytest.param(crowd(threads=1), False, id="one thread waits for nobody"),
        pytest.param(crowd(cpus=16.0), False, id="a CPU for each thread"),
        pytest.param(crowd(threads=16, cpus=16.0, others=4.0), True, id="as many threads as CPUs"),
        pytest.param(crowd(threads=12, cpus=16.0, others=4.0), False, id="threads for the CPUs that are left"),
        pytest.param(crowd(openmp=OpenMp("libgomp", {"OMP_WAIT_POLICY": "passive"})), False, id="cured"),
        pytest.param(crowd(openmp=OpenMp("libgomp", {"GOMP_SPINCOUNT": SPINS})), False, id="as gpudoc's own"),
        pytest.param(crowd(openmp=OpenMp("libgomp", {"GOMP_SPINCOUNT": "300000"})), True, id="as libgomp's own"),
        pytest.param(crowd(openmp=OpenMp("libiomp5", {"KMP_BLOCKTIME": "200"})), True, id="not cured by that"),
    ],
)
def test_threads_spin_where_others_leave_too_few_cpus(seen, spins):
    assert (find_spinning(seen) is not None) is spins


def test_the_finding_has_the_setting_of_the_runtime_and_fewer_threads():
    found = find_spinning(crowd(threads=16, cpus=16.0, others=4.2, openmp=OpenMp("libiomp5")))
    assert found.title == "16 OpenMP threads spin on 16 CPUs, and other processes keep 4.2 of these busy"
    assert [remedy.run for remedy in found.fix] == ["export KMP_BLOCKTIME=0", "export OMP_NUM_THREADS=12"]
    assert any("11.8 for 16 threads" in seen.value for seen in found.evidence)


def test_at_least_one_thread_is_advised():
    assert find_spinning(crowd(others=2.0)).fix[1].run == "export OMP_NUM_THREADS=1"


@pytest.mark.parametrize(
    ("others", "settings", "may"),
    [
        (1.0, {}, True),
        (0.1, {}, False),
        (1.0, {"OMP_WAIT_POLICY": "active"}, False),
        (1.0, {"KMP_BLOCKTIME": "9"}, True),
    ],
    ids=["spins", "alone", "told", "told another runtime"],
)
def test_threads_of_what_is_started_here_may_sleep(monkeypatch, others, settings, may):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr("gpudoc.facts.host.cpus_usable", lambda: 2.0)
    monkeypatch.setattr(spinning, "own_openmp", lambda: OpenMp("libgomp", settings))
    assert may_sleep(others) is may


def settings_here():
    return {name: os.environ[name] for name in WAITING if name in os.environ}


@pytest.fixture
def starts(monkeypatch):
    """How often the next start looks for others, who compute on so many of these two CPUs."""

    def others(cpus, runtime="libgomp"):
        looks = []
        counted = None if cpus is None else CpuLoad(other_cpus=cpus, other_share=0.5, share=0.5, stolen_share=None)
        monkeypatch.setattr("gpudoc.process.cpu_load.LoadMeter.read", lambda _: looks.append(1) or counted)
        monkeypatch.setattr(spinning, "own_openmp", lambda: OpenMp(runtime, settings_here()))
        return looks

    for name in WAITING:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr("gpudoc.facts.host.cpus_usable", lambda: 2.0)
    monkeypatch.setattr(spinning.time, "sleep", lambda _: None)
    yield others
    # set by what is tested, which monkeypatch does not know of
    for name in WAITING:
        os.environ.pop(name, None)


@pytest.mark.parametrize(
    ("others", "count"),
    [(1.0, SPINS_IN_A_CROWD), (0.1, SPINS), (None, SPINS)],
    ids=["next to a loop", "alone", "not counted"],
)
def test_threads_that_wait_sleep_at_once_next_to_others_and_soon_alone(starts, others, count):
    looks = starts(others)
    bound_spinning()
    assert settings_here() == {"GOMP_SPINCOUNT": count}
    # a child finds it set, and so does the next command of this process
    bound_spinning()
    assert (settings_here(), len(looks)) == ({"GOMP_SPINCOUNT": count}, 1)
    found = OpenMp("libgomp", settings_here())
    assert (found.is_bounded, found.is_passive) == (count == SPINS, count == SPINS_IN_A_CROWD)


@pytest.mark.parametrize("told", [{"GOMP_SPINCOUNT": "77"}, {"OMP_WAIT_POLICY": "active"}], ids=["count", "policy"])
def test_what_somebody_has_set_stays(starts, monkeypatch, told):
    looks = starts(1.0)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    bound_spinning()
    assert (settings_here(), looks) == (told, [])


@pytest.mark.parametrize("runtime", ["libiomp5", "libomp", None])
def test_another_runtime_waits_as_it_does(starts, runtime):
    looks = starts(1.0, runtime)
    bound_spinning()
    assert (settings_here(), looks) == ({}, [])


def test_the_runtime_reads_it_where_torch_is_imported_afterwards():
    """libgomp reads its variables once, as it is loaded, and shows with OMP_DISPLAY_ENV what it has read."""
    if own_openmp().runtime != "libgomp":
        pytest.skip("torch has another runtime here")
    code = "import os; from gpudoc.doctor.spinning import bound_spinning; bound_spinning(); import torch; "
    environment = {name: value for name, value in os.environ.items() if name not in WAITING}
    done = subprocess.run(
        [sys.executable, "-c", code + "print(os.environ['GOMP_SPINCOUNT'])"],
        env={**environment, "OMP_DISPLAY_ENV": "verbose"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"GOMP_SPINCOUNT = '{done.stdout.strip()}'" in done.stderr
