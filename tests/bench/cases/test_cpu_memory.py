from types import SimpleNamespace

import pytest
import torch

from gpudoc.bench.cases import cpu_memory
from gpudoc.bench.cases.cpu_memory import CASE, CURVE, array_bytes
from gpudoc.units import GIB, MIB
from tests.bench.host_gpu import bench

NAMES = ("memory_read", "memory_write", "memory_copy", "memory_triad")


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def measured(quick):
    return list(CASE.run(bench(device="cpu", threads=2, memory_bytes=64 * MIB, quick=quick)))


def test_all_rows_at_one_and_all_threads_with_right_results():
    readings = measured(quick=False)
    found = {(r.name, r.parameters["threads"]) for r in readings if r.name != "memory_curve"}
    assert found == {(name, threads) for name in NAMES for threads in (1, 2)}
    assert [r.parameters["bytes"] for r in readings if r.name == "memory_curve"] == list(CURVE)
    assert not [r.corrupted for r in readings if r.corrupted]


def test_a_quick_run_has_fewer_rows_of_the_same_names():
    quick, full = measured(quick=True), {r.key for r in measured(quick=False)}
    assert {r.key for r in quick} < full
    assert [r.parameters["threads"] for r in quick if r.name == "memory_copy"] == [1, 2]
    # the bytes are measured and may differ from run to run, so they are beside the row and not in its name
    assert {r.context["array_bytes"] for r in quick if r.name in NAMES} == {8 * MIB}
    assert not [r.key for r in quick if r.name in NAMES and "bytes" in r.parameters]


def never(size):
    raise AssertionError(f"{size} bytes were measured though the cache is small")


def test_arrays_are_four_times_a_small_last_level_cache_where_memory_allows():
    assert array_bytes(32 * MIB, 512 * GIB, never) == 128 * MIB
    assert array_bytes(64 * MIB, 512 * GIB, never) == 256 * MIB
    assert array_bytes(0, 512 * GIB, never) == 256 * MIB
    assert array_bytes(256 * MIB, GIB, never) == 128 * MIB


@pytest.mark.parametrize(("really_mib", "expected_mib"), [(20, 256), (128, 512), (260, 1024), (2000, 1040)])
def test_of_a_cache_that_is_shown_large_only_what_is_there_counts(really_mib, expected_mib):
    """A virtual machine that shows 260 MiB: half an array is read faster while it fits into what one really gets."""
    assert array_bytes(260 * MIB, 512 * GIB, lambda size: size // 2 <= really_mib * MIB) == expected_mib * MIB


@pytest.mark.parametrize(("half_s", "whole_s", "cached"), [(0.5, 1.0, False), (0.4, 1.0, True), (0.6, 1.0, False)])
def test_an_array_is_cached_when_its_half_is_read_clearly_faster(half_s, whole_s, cached, monkeypatch):
    # two readings of the clock for each look: at the half, then at the whole
    spans = [half_s] * cpu_memory.LOOKS + [whole_s] * cpu_memory.LOOKS
    moments = iter([moment for place, span in enumerate(spans) for moment in (10.0 * place, 10.0 * place + span)])
    monkeypatch.setattr(cpu_memory, "time", SimpleNamespace(perf_counter=lambda: next(moments)))
    assert cpu_memory.is_cached(MIB) is cached


def test_pieces_take_turns_so_that_none_is_still_in_a_cache():
    whole = torch.zeros(64, dtype=torch.float64)
    ring = cpu_memory._Ring(whole, whole, whole)
    seen = []
    for _ in range(6):
        ring.turn(lambda piece: seen.append(piece.source.data_ptr() - whole.data_ptr()))
    assert seen == [0, 128, 256, 384, 0, 128]
    assert ring.touched == {0, 1, 2, 3}
    assert ring.piece_bytes == 128


@pytest.mark.parametrize("name", ["memory_write", "memory_copy", "memory_triad"])
def test_bytes_that_were_not_written_are_found(name):
    source, other = torch.rand(8192, dtype=torch.float64), torch.rand(8192, dtype=torch.float64)
    ring = cpu_memory._Ring(source, other, torch.zeros(8192, dtype=torch.float64))
    action = {made: action for made, _, action in cpu_memory._actions()}[name]
    ring.turn(action)
    assert cpu_memory._check(name, ring) == ""
    # a piece that was worked on, and that something else has changed
    ring.target[5] += 1
    assert name in cpu_memory._check(name, ring)


def test_too_little_memory_is_said():
    assert "64 MiB" in CASE.absent_because(bench(device="cpu", memory_bytes=MIB))
