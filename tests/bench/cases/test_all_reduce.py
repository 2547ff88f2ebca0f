import pytest

from gpudoc.bench.cases.all_reduce import CASE, measure
from tests.bench.host_gpu import HostGpu, bench


def test_a_real_all_reduce_over_two_processes():
    times = measure("gloo", "cpu", 2, [4096, 1 << 20])
    assert set(times) == {4096, 1 << 20}
    assert all(len(one) == 10 and min(one) > 0 for one in times.values())


def test_a_backend_that_fails_says_so():
    with pytest.raises(RuntimeError, match="all-reduce over 1 processes failed"):
        measure("no-such-backend", "cpu", 1, [4096])


def test_one_gpu_reduces_with_nobody():
    assert CASE.absent_because(bench(gpu=HostGpu(), num_gpus=1)) == "there is one GPU"
    assert CASE.absent_because(bench(gpu=HostGpu(), num_gpus=8)) == ""
