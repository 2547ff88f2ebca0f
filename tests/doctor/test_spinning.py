import pytest

from gpudoc.doctor import spinning
from gpudoc.doctor.spinning import Crowd, find_spinning, is_crowded, may_sleep
from gpudoc.process.beside import Beside
from gpudoc.process.openmp import SPINS, OpenMp

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


@pytest.mark.parametrize(
    ("others", "crowded"), [(1.0, True), (0.1, False), (None, False)], ids=["loop", "idle", "not read"]
)
def test_it_is_crowded_where_the_kernel_counts_others_on_these_cpus(monkeypatch, others, crowded):
    counted = None if others is None else Beside(other_cpus=others, other_share=0.5, share=0.5, stolen_share=None)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr("gpudoc.facts.host.cpus_usable", lambda: 2.0)
    monkeypatch.setattr(spinning, "own_openmp", lambda: GOMP)
    monkeypatch.setattr(spinning.time, "sleep", lambda _: None)
    monkeypatch.setattr("gpudoc.process.beside.LoadMeter.read", lambda _: counted)
    assert is_crowded() is crowded
