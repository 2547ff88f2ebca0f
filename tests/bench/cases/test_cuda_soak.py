import pytest

from gpudoc.bench.cases import cuda_soak
from gpudoc.bench.cases.cuda_matmul import Shape
from gpudoc.bench.cases.cuda_soak import CASE
from tests.bench.host_gpu import HostGpu, bench


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(cuda_soak, "choose_shapes", lambda *_, **__: (Shape(256, 256, 128),))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seconds", [0.2, 1e-6])
def test_a_soak_gives_its_begin_and_its_end_and_is_heard_between(seconds):
    beats = []
    run = bench(gpu=HostGpu(), soak_s=seconds)
    run.is_alive = lambda: beats.append(1)
    start, end = CASE.run(run)
    assert (start.name, end.name) == ("soak_start", "soak_end")
    assert start.parameters == {"dtype": "bf16", "shape": "256x256x128", "seconds": seconds}
    assert start.samples
    assert end.samples
    # so that the counters seen meanwhile belong to one of them
    assert start.ended_s <= end.began_s
    assert len(beats) >= 2
    assert not end.corrupted


@pytest.mark.usefixtures("small")
def test_a_soak_goes_on_for_the_seconds_asked_for():
    start, end = CASE.run(bench(gpu=HostGpu(), soak_s=0.3))
    assert end.ended_s - start.began_s >= 0.3
