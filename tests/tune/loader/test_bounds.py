import pytest

from gpudoc.tune.loader.bounds import bounds_here


def test_bounds_here_are_shared_by_the_ranks():
    alone, shared = bounds_here(), bounds_here(ranks=2)
    assert alone.cpus == 2 * shared.cpus > 0
    assert alone.ram_bytes == pytest.approx(2 * shared.ram_bytes, rel=0.2)
