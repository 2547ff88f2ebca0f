import pytest
import torch
import torch.distributed as dist

from gpudoc.bench.collective import OPERATIONS, SIZES, bus_gb_per_s, time_collective, whole_size


def test_bus_bandwidth_is_that_of_nccl_tests():
    # 1 GB in 1 s: every byte crosses each link 2 (n - 1) / n times
    assert bus_gb_per_s(10**9, 1.0, 2) == pytest.approx(1.0)
    assert bus_gb_per_s(10**9, 1.0, 8) == pytest.approx(1.75)


def test_sizes_are_whole_floats():
    assert all(size % 4 == 0 for size in SIZES)


def test_all_but_the_all_reduce_cross_each_link_once():
    assert bus_gb_per_s(10**9, 1.0, 8, "all_gather") == pytest.approx(0.875)


def test_every_rank_gets_the_same_number_of_floats():
    assert whole_size("all_reduce", 8, 3) == 8
    assert whole_size("all_gather", 8, 3) == 12
    assert whole_size("all_to_all", 4096, 8) == 4096


@pytest.fixture
def alone(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_arrives_otherwise_than_it_was_sent_is_an_error(alone, monkeypatch, operation):
    assert len(time_collective(operation, 64, torch.device("cpu"), 2)) == 2
    name = {"all_gather": "all_gather_into_tensor", "reduce_scatter": "reduce_scatter_tensor"}.get(operation, operation)
    name = "all_to_all_single" if operation == "all_to_all" else name
    monkeypatch.setattr(dist, name, lambda out, *_: out.fill_(7.0))
    with pytest.raises(RuntimeError, match=f"{operation} of 64 bytes left other values"):
        time_collective(operation, 64, torch.device("cpu"), 2)
