"""What CUDA does differently, told to fake CPU tensors. The figures against a real GPU are in tests/gpu/."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from gpudoc.plan.cuda_paths import like_cuda, prefer_foreach
from gpudoc.plan.tape import StorageKind
from gpudoc.plan.tracing import Recipe, record


def recipe(step, build=lambda: nn.Linear(64, 64), like="cuda"):
    return Recipe(build=build, batch=lambda n: torch.randn(n, 64), step=step, like=like)


def test_dropout_keeps_one_byte_per_element():
    def step(model, value):
        F.dropout(model(value), 0.1).sum().backward()

    kept = [b.size_bytes for b in record(recipe(step), 16).blocks if b.op == "native_dropout"]
    assert 16 * 64 in kept
    assert not [b for b in record(recipe(step, like="cpu"), 16).blocks if b.op == "native_dropout"]


def test_attention_with_dropout_keeps_no_score_matrix():
    def step(model, value):
        heads = model(value).view(4, 4, -1, 16)
        F.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.1).sum().backward()

    rows = 256
    score = 4 * 4 * (rows // 4) ** 2 * 4
    like_cpu, like_gpu = (record(recipe(step, like=like), rows) for like in ("cpu", "cuda"))
    assert max(b.size_bytes for b in like_cpu.blocks if b.kind is StorageKind.ACTIVATIONS) >= score
    assert max(b.size_bytes for b in like_gpu.blocks if b.kind is StorageKind.ACTIVATIONS) < score


@pytest.mark.parametrize(("dtype", "copies"), [(torch.float32, True), (torch.bfloat16, False)])
def test_attention_in_32_bits_lays_its_result_row_by_row_whatever_its_query_does(dtype, copies):
    """nn.MultiheadAttention lays samples beside each other, and copies a result that does not."""
    found = []

    def step(model, value):
        heads = model(value).to(dtype).view(-1, 4, 4, 16).permute(1, 2, 0, 3)
        mixed = F.scaled_dot_product_attention(heads, heads, heads)
        found.append(mixed.permute(2, 0, 1, 3).is_contiguous())
        mixed.sum().backward()

    record(recipe(step), 32)
    assert found == [not copies] * 2


@pytest.mark.parametrize("mask", [True, False])
def test_attention_takes_masks(mask):
    def step(model, value):
        heads = model(value).view(4, 4, -1, 16)
        allowed = torch.ones(heads.shape[2], heads.shape[2], dtype=torch.bool) if mask else None
        F.scaled_dot_product_attention(heads, heads, heads, allowed).sum().backward()

    assert record(recipe(step), 64).peak_bytes() > 0


def test_autocast_computes_norms_softmax_and_losses_in_float32():
    made = {}

    def step(model, value):
        with torch.autocast("cuda", torch.bfloat16):
            out = model(value)
            made["linear"], made["norm"] = out.dtype, F.layer_norm(out, (64,)).dtype
            made["softmax"], made["sum"] = out.softmax(-1).dtype, out.sum().dtype
            loss = F.cross_entropy(out, torch.zeros(len(out), dtype=torch.long))
            made["loss"] = loss.dtype
        loss.backward()

    record(recipe(step), 8)
    assert made.pop("linear") is torch.bfloat16
    assert set(made.values()) == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_softmax_widens_without_a_wide_copy_of_its_input(dtype):
    def step(model, value):
        with torch.autocast("cuda", dtype):
            (F.log_softmax(model(value), -1) + F.softmax(model(value), -1)).mean().backward()

    blocks = record(recipe(step), 1024).blocks
    wide = [b.op for b in blocks if b.size_bytes == 1024 * 64 * 4 and b.phase.value == "forward"]
    assert "_to_copy" not in wide
    assert "empty_like" in wide


def test_a_cross_entropy_keeps_its_log_softmax_narrow_and_widens_for_the_loss():
    def step(model, value):
        with torch.autocast("cuda", torch.bfloat16):
            F.cross_entropy(model(value), torch.zeros(len(value), dtype=torch.long)).backward()

    blocks = record(recipe(step), 1024).blocks
    forward = {b.op: b.size_bytes for b in blocks if b.phase.value == "forward"}
    assert forward["_log_softmax"] == 1024 * 64 * 2
    assert max(forward.values()) == 1024 * 64 * 4


def test_code_written_for_cuda_runs_on_a_machine_without_it():
    def build():
        model = nn.Linear(64, 64).to("cuda").cuda()
        return model, torch.zeros(3, device="cuda:0")

    def step(state, value):
        model, _ = state
        with torch.autocast("cuda"):
            out = model(value.to("cuda", non_blocking=True))
            assert out.dtype is torch.float16
        out.float().sum().backward()

    assert record(recipe(step, build), 8).peak_bytes() > 0


def test_optimizers_take_all_parameters_at_once_unless_told_otherwise():
    weights = [torch.ones(2, requires_grad=True)]
    default, told, fused = (torch.optim.Adam(weights, **how) for how in ({}, {"foreach": False}, {"fused": True}))
    prefer_foreach([default, told, fused])
    assert [o.param_groups[0]["foreach"] for o in (default, told, fused)] == [True, False, None]


def test_a_foreach_step_needs_room_for_all_square_roots():
    def build():
        model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8)))
        return model, torch.optim.Adam(model.parameters())

    def step(state, value):
        state[0](value).sum().backward()
        state[1].step()

    at_once, one_by_one = (record(recipe(step, build, like), 2).peak_bytes() for like in ("cuda", "cpu"))
    weights, layer = 8 * (64 * 64 + 64) * 4, 64 * 64 * 4
    assert at_once - one_by_one == pytest.approx(weights - 2 * layer, rel=0.02)


def test_torch_is_left_as_it_was():
    before = torch.autocast.__init__
    with like_cuda():
        pass
    assert torch.autocast.__init__ is before
    with torch.autocast("cpu", torch.bfloat16):
        assert F.layer_norm(torch.ones(2, 4).bfloat16(), (4,)).dtype is torch.bfloat16
        assert F.cross_entropy(torch.ones(2, 4).bfloat16(), torch.tensor([0, 1])).dtype is torch.float32
