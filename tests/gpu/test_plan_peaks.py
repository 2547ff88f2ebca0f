"""Predicted against measured peaks on a real GPU; `make gpu-check` runs them."""

import gc

import pytest
import torch

from gpudoc.knowledge.cards import cublas_workspace_bytes
from gpudoc.plan.allocator import StoryPart, replay_parts
from gpudoc.plan.memory import join
from gpudoc.plan.tracing import STEPS, record
from tests.plan.zoo import recipes
from tests.standin.gpus import real_gpu

pytestmark = pytest.mark.gpu

# cuDNN's workspaces are not modelled
CONVOLUTIONAL = {"resnet": 0.25, "unet": 0.25, "vit": 0.1}
BATCH = 32


def run_on_gpu(recipe, batch):
    """Peaks of (allocated, reserved) bytes over building and two steps, from an empty allocator."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.device("cuda"):
        state = recipe.build()
        for _ in range(STEPS):
            recipe.step(state, recipe.batch(batch))
    torch.cuda.synchronize()
    peaks = torch.cuda.max_memory_allocated() - before, torch.cuda.max_memory_reserved()
    del state
    return peaks


def predicted(name, precision, batch):
    """Allocated and reserved bytes; reserved with the workspaces of cuBLAS, which the process has taken already."""
    made = recipes(precision, scale=4, like="cuda")[name]
    model = join([record(made, size) for size in (24, 40)], "cuda")
    workspaces = [cublas_workspace_bytes(torch.cuda.get_device_capability())] * 2
    planned = model.sizes(batch).tolist()
    events = [len(planned), len(planned) + 1, *model.events.tolist()]
    story = replay_parts([StoryPart([*planned, *workspaces], events)])
    return story.allocated_peak_bytes - sum(workspaces), story.reserved_peak_bytes


@pytest.fixture(autouse=True)
def warm():
    # the thread of forward and the thread of backward each keep a workspace of cuBLAS from their first product on
    eight = torch.ones(8, 8, device="cuda", requires_grad=True)
    (eight @ eight).sum().backward()


def can_trace_softmax():
    """Whether tensors without memory go through softmax as autocast calls it."""
    try:
        torch._softmax(torch.empty(2, 2, dtype=torch.bfloat16, device="meta"), 1, True)
    except (AssertionError, RuntimeError):
        return False
    return True


NEEDS_REAL = {"lstm": real_gpu("the stand-in's cuDNN has no recurrent nets")}


@pytest.mark.parametrize("name", [pytest.param(name, marks=NEEDS_REAL.get(name, ())) for name in recipes("fp32")])
def test_the_predicted_allocated_peak_in_float32_is_the_gpus(name):
    allocated, _ = run_on_gpu(recipes("fp32", scale=4)[name], BATCH)
    assert predicted(name, "fp32", BATCH)[0] == pytest.approx(allocated, rel=CONVOLUTIONAL.get(name, 0.05))


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "llama", "moe", "gan", "checkpointed"])
def test_the_predicted_allocated_peak_under_cudas_autocast_is_the_gpus(name):
    if name == "moe" and not can_trace_softmax():
        pytest.skip("this PyTorch cannot trace softmax from bfloat16 to float32, as it does up to 2.9")
    made = recipes("bf16", scale=4, like="cuda")[name]
    allocated, _ = run_on_gpu(made, BATCH)
    assert predicted(name, "bf16", BATCH)[0] == pytest.approx(allocated, rel=0.05)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_predicted_reserved_peak_is_the_gpus(name):
    _, reserved = run_on_gpu(recipes("fp32", scale=4)[name], BATCH)
    assert predicted(name, "fp32", BATCH)[1] == pytest.approx(reserved, rel=0.1)


def test_the_allocator_model_reserves_what_the_real_one_does():
    sizes = [1, 700 << 10, 3 << 20, 9 << 20, 15 << 20, 40 << 20, 12 << 20]
    events = [0, 1, 2, 3, ~2, 4, ~4, 5, ~5, 6]
    gc.collect()
    torch.cuda.empty_cache()
    base = torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    living = {}
    for event in events:
        if event >= 0:
            living[event] = torch.empty(sizes[event], dtype=torch.uint8, device="cuda")
        else:
            del living[~event]
    assert torch.cuda.max_memory_reserved() - base <= replay_parts([StoryPart(sizes, events)]).reserved_peak_bytes
    if base == 0:
        assert torch.cuda.max_memory_reserved() == replay_parts([StoryPart(sizes, events)]).reserved_peak_bytes
