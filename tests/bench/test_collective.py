import pytest

from gpudoc.bench.collective import SIZES, bus_gb_per_s


def test_bus_bandwidth_is_that_of_nccl_tests():
    # 1 GB in 1 s: every byte crosses each link 2 (n - 1) / n times
    assert bus_gb_per_s(10**9, 1.0, 2) == pytest.approx(1.0)
    assert bus_gb_per_s(10**9, 1.0, 8) == pytest.approx(1.75)


def test_sizes_are_whole_floats():
    assert all(size % 4 == 0 for size in SIZES)
