from gpudoc.bench.cases import cuda_copies
from gpudoc.bench.cases.cuda_copies import CASE, QUICK_SIZES, SIZES, usable_sizes
from gpudoc.bench.gpu import GpuTraits
from gpudoc.units import GIB, KIB, MIB
from tests.bench.host_gpu import HostGpu, bench

SMALL = 128 * MIB  # of memory: sizes up to 16 MiB fit


def rows(readings):
    return {(r.name, r.parameters["bytes"], r.parameters["host"]) for r in readings}


def test_every_size_direction_and_kind_of_memory_is_measured_and_right():
    run = bench(gpu=HostGpu(), memory_bytes=SMALL)
    readings = list(CASE.run(run))
    sizes = [4 * KIB, MIB, 16 * MIB]
    assert {r for r in rows(readings) if r[0] == "h2d" and r[2] == "pinned"} == {("h2d", s, "pinned") for s in sizes}
    assert ("d2h", 16 * MIB, "pageable") in rows(readings)
    assert ("bidirectional", 16 * MIB, "pinned") in rows(readings)
    assert ("h2d_latency", 4 * KIB, "pinned") in rows(readings)
    assert not [r.corrupted for r in readings if r.corrupted]
    assert all(r.samples for r in readings)


def test_both_directions_give_a_sum_and_each_alone():
    both = next(r for r in CASE.run(bench(gpu=HostGpu(), memory_bytes=SMALL)) if r.name == "bidirectional")
    assert {"h2d_gb_per_s", "d2h_gb_per_s"} <= set(both.context)


def test_sizes_that_do_not_fit_are_left_out_and_said():
    run = bench(gpu=HostGpu(free_bytes=8 * MIB))
    measured = {r.parameters["bytes"] for r in CASE.run(run)}
    assert max(measured) == MIB
    assert [what for what, _ in run.left_out] == ["copies of 16 MiB", "copies of 256 MiB"]
    nothing = bench(gpu=HostGpu(free_bytes=1024))
    assert list(CASE.run(nothing)) == []
    assert len(nothing.left_out) == len(QUICK_SIZES)


def test_without_page_locked_memory_the_rest_is_measured():
    run = bench(gpu=HostGpu(pins=False), memory_bytes=SMALL)
    readings = list(CASE.run(run))
    assert {r.parameters["host"] for r in readings} == {"pageable"}
    assert "page-locked" in run.left_out[-1][0]


def test_only_the_sizes_that_the_system_does_not_lock_are_left_out():
    run = bench(gpu=HostGpu(pins=64 << 10), memory_bytes=SMALL)
    readings = [r for r in CASE.run(run) if r.name == "h2d" and r.parameters["host"] == "pinned"]
    assert readings
    assert max(r.parameters["bytes"] for r in readings) <= 64 << 10
    assert any(r.name == "h2d_latency" for r in CASE.run(bench(gpu=HostGpu(pins=64 << 10), memory_bytes=SMALL)))
    (what, because) = run.left_out[-1]
    assert what.startswith("copies from page-locked memory of ")
    assert "out of memory" in because


def test_a_device_that_returns_wrong_bytes_is_caught(monkeypatch):
    class Flipping(HostGpu):
        def time_each(self, actions, between=None, spin=True):
            times = super().time_each(actions, between)
            self.broken[0] ^= 255
            return times

    gpu = Flipping()
    made = cuda_copies._allocate

    def allocate(run, size):
        buffers = made(run, size)
        gpu.broken = buffers.device_in
        return buffers

    monkeypatch.setattr(cuda_copies, "_allocate", allocate)
    readings = list(CASE.run(bench(gpu=gpu, memory_bytes=SMALL)))
    assert any("differs" in r.corrupted for r in readings if r.name == "h2d")


def test_the_full_range_and_a_gpu_in_the_hosts_own_memory():
    assert SIZES[0] == 4 * KIB
    assert SIZES[-1] == GIB
    assert usable_sizes(SIZES, 64 * GIB, 80 * GIB) == list(SIZES)
    shared = GpuTraits(name="x", sm_count=1, l2_bytes=0, capability=(8, 7), memory_bytes=GIB, integrated=True)
    assert "shares" in CASE.absent_because(bench(gpu=HostGpu(traits=shared)))
    assert CASE.absent_because(bench(gpu=HostGpu())) == ""
