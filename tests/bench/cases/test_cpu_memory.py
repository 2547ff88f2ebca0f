import torch

from gpudoc.bench.cases import cpu_memory
from gpudoc.bench.cases.cpu_memory import CASE, CURVE, array_bytes
from gpudoc.units import GIB, MIB
from tests.bench.host_gpu import bench


def test_all_rows_at_one_and_all_threads_with_right_results():
    before = torch.get_num_threads()
    readings = list(CASE.run(bench(device="cpu", threads=2, memory_bytes=64 * MIB)))
    torch.set_num_threads(before)
    found = {(r.name, r.parameters["threads"]) for r in readings if r.name != "memory_curve"}
    names = ("memory_read", "memory_write", "memory_copy", "memory_triad")
    assert found == {(name, threads) for name in names for threads in (1, 2)}
    assert [r.parameters["bytes"] for r in readings if r.name == "memory_curve"] == list(CURVE)
    assert not [r.corrupted for r in readings if r.corrupted]


def test_arrays_are_four_times_the_last_level_cache_where_memory_allows():
    assert array_bytes(256 * MIB, 512 * GIB) == GIB
    assert array_bytes(32 * MIB, 512 * GIB) == 128 * MIB
    assert array_bytes(0, 512 * GIB) == 256 * MIB
    assert array_bytes(256 * MIB, GIB) == 128 * MIB


def test_bytes_that_were_not_written_are_found():
    source, other = torch.rand(8192, dtype=torch.float64), torch.rand(8192, dtype=torch.float64)
    for name in ("memory_write", "memory_copy", "memory_triad"):
        assert name in cpu_memory._check(name, source, other, torch.zeros(8192, dtype=torch.float64))
    assert cpu_memory._check("memory_copy", source, other, source.clone()) == ""


def test_too_little_memory_is_said():
    assert "64 MiB" in CASE.absent_because(bench(device="cpu", memory_bytes=MIB))
