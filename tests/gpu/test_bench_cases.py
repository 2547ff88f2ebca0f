"""The GPU cases on a GPU: `make gpu-check` runs them on a real one, `make cuda-check` on the stand-in."""

import itertools

import pytest
import torch

from gpudoc.bench.cases import cuda_copies, cuda_launch, cuda_matmul, cuda_memory, cuda_peers
from gpudoc.bench.gpu import CudaGpu
from gpudoc.bench.sampling import Bench, SamplingPlan
from gpudoc.stats import median
from gpudoc.units import GIB, MIB
from tests.standin.gpus import real_gpu

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def bench():
    plan = SamplingPlan(device="cuda:0", quick=True, memory_bytes=8 * GIB, num_gpus=torch.cuda.device_count())
    return Bench(plan=plan, budget_s=5.0, gpu=CudaGpu(0))


@pytest.fixture(autouse=True)
def whatever_the_host_does_meanwhile(monkeypatch):
    """On the stand-in: a busy host leaves no gaps between what is queued; no other GPU heeds it."""
    monkeypatch.setenv("STANDIN_CLOCK", "virtual")


CASES = [
    pytest.param(cuda_copies, id="copies"),
    pytest.param(cuda_memory, id="device_memory"),
    pytest.param(cuda_launch, id="launch"),
    pytest.param(cuda_matmul, id="matmul", marks=real_gpu("a CPU would multiply for minutes")),
]


@pytest.mark.parametrize("case", CASES)
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
    allocate, made = cuda_copies._allocate, []

    def kept(run, size):
        made.append(allocate(run, size))
        return made[-1]

    def changed(actions, between=None, spin=True):
        for action in actions:
            action()
        made[-1].device_in[7] ^= 255
        return [0.001] * len(actions)

    monkeypatch.setattr(cuda_copies, "_allocate", kept)
    monkeypatch.setattr(bench.gpu, "time_each", changed)
    first = next(one for one in cuda_copies.CASE.run(bench) if one.name == "h2d")
    assert "differs" in first.corrupted


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_every_pair_copies(bench):
    readings = list(cuda_peers.CASE.run(bench))
    pairs = {(one.parameters["from"], one.parameters["to"]) for one in readings}
    assert pairs == set(itertools.permutations(range(torch.cuda.device_count()), 2))
    assert not [one.corrupted for one in readings if one.corrupted]
