"""The GPU cases on a real GPU; `make gpu-check` runs them."""

import itertools

import pytest
import torch

from gpudoc.bench.cases import cuda_copies, cuda_launch, cuda_matmul, cuda_memory, cuda_peers
from gpudoc.bench.gpu import CudaGpu
from gpudoc.bench.sampling import Bench, Plan
from gpudoc.stats import median
from gpudoc.units import GIB, MIB

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def bench():
    plan = Plan(device="cuda:0", quick=True, memory_bytes=8 * GIB, num_gpus=torch.cuda.device_count())
    return Bench(plan=plan, budget_s=5.0, gpu=CudaGpu(0))


@pytest.mark.parametrize("case", [cuda_copies, cuda_memory, cuda_launch, cuda_matmul], ids=lambda case: case.CASE.name)
def test_a_case_gives_rows_with_samples_and_right_data(bench, case):
    readings = list(case.CASE.run(bench))
    assert readings
    assert not [one.corrupted for one in readings if one.corrupted]
    assert all(min(one.samples) > 0 for one in readings)


def test_every_type_of_the_capability_is_multiplied(bench):
    bench.left_out.clear()
    done = {one.parameters["dtype"] for one in cuda_matmul.CASE.run(bench)}
    assert done == set(cuda_matmul.choose_dtypes(bench.gpu.traits.capability, quick=True)), bench.left_out


def test_work_is_queued_before_it_runs_so_that_small_actions_are_not_timed_by_the_host(bench):
    value = torch.zeros(1, device="cuda")
    times = bench.gpu.time_each([lambda: value.add_(1.0)] * 50)
    # a launch costs the host 5 microseconds and more, the kernel itself less
    assert 0 < median(times) < 20e-6


def test_two_streams_run_at_once(bench):
    host = torch.empty(256 * MIB, dtype=torch.uint8).pin_memory()
    back = torch.empty_like(host).pin_memory()
    device, other = (torch.empty(256 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2))
    both, down, up = bench.gpu.time_pair(
        lambda: device.copy_(host, non_blocking=True), lambda: back.copy_(other, non_blocking=True)
    )
    assert both < 0.9 * (down + up)


def test_a_copy_that_the_device_changes_is_caught(bench, monkeypatch):
    made = cuda_copies._allocate

    def allocate(run, size):
        buffers = made(run, size)
        kept = buffers.pinned.clone()
        buffers.pinned[:64] ^= 255
        buffers.device_in[:64] = kept[:64].cuda()
        return buffers

    monkeypatch.setattr(cuda_copies, "_allocate", allocate)
    monkeypatch.setattr(bench.gpu, "time_each", lambda actions, between=None, spin=True: [0.001] * len(actions))
    first = next(one for one in cuda_copies.CASE.run(bench) if one.name == "h2d")
    assert "differs" in first.corrupted


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_every_pair_copies(bench):
    readings = list(cuda_peers.CASE.run(bench))
    pairs = {(one.parameters["from"], one.parameters["to"]) for one in readings}
    assert pairs == set(itertools.permutations(range(torch.cuda.device_count()), 2))
    assert not [one.corrupted for one in readings if one.corrupted]
