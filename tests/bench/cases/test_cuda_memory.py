from gpudoc.bench.cases import cuda_memory
from gpudoc.bench.cases.cuda_memory import CASE, buffer_bytes
from gpudoc.units import GIB, MIB
from tests.bench.host_gpu import HostGpu, bench


def test_four_ways_of_moving_memory_with_right_results():
    readings = list(CASE.run(bench(gpu=HostGpu(free_bytes=96 * MIB))))
    assert [r.name for r in readings] == ["device_read", "device_write", "device_copy", "device_triad"]
    assert {r.parameters["bytes"] for r in readings} == {16 * MIB}
    assert not [r.corrupted for r in readings if r.corrupted]


def test_a_copy_that_did_not_happen_is_corrupted():
    class Lazy(HostGpu):
        def time_each(self, actions, between=None, spin=True):
            return [0.001 for _ in actions]

    found = {r.name: r.corrupted for r in CASE.run(bench(gpu=Lazy(free_bytes=12 * MIB)))}
    assert found["device_copy"]
    assert found["device_write"]


def test_buffers_are_far_beyond_the_cache_and_leave_room():
    assert buffer_bytes(50 * MIB, 80 * GIB) == 800 * MIB
    assert buffer_bytes(4 * MIB, 80 * GIB) == 512 * MIB
    assert buffer_bytes(50 * MIB, 1200 * MIB) == 200 * MIB
    assert "MiB" in cuda_memory.CASE.absent_because(bench(gpu=HostGpu(free_bytes=100 * MIB)))
    assert CASE.absent_because(bench(gpu=HostGpu())) == ""
