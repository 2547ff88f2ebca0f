"""What a step held at its highest moment, by a net whose tensors can be counted by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from gpudoc.train.loop.census import Census, PeakComposition, owned
from gpudoc.train.step.step import Micro
from tests.train.step.test_step import batch, stepper
from tests.train.support import summary, train_here, write_workload

LINE = ("--model", "cfg.yaml", "--no-preflight", "--profile", "off")
FLOAT = 4
# tests.train.support: 8 numbers to 16 to 1, in batches of 12
WEIGHTS = (8 * 16 + 16 + 16 + 1) * FLOAT
# AdamW: two moments and a count of steps for each of four parameters
STATE = 2 * WEIGHTS + 4 * FLOAT


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("census")
    write_workload(folder, log_every=2, eval_every=2, evaluated=True)
    assert train_here(folder, *LINE, "--steps", 4) == 0
    return summary(folder / "runs/cfg")["memory"]


def test_a_step_is_weights_gradients_optimizer_state_and_what_autograd_kept(memory):
    assert memory["step"] == 3
    sizes = memory["bytes"]
    assert (sizes["weights"], sizes["optimizer"]) == (WEIGHTS, STATE)
    # the highest moment is in backward: the loss has let its input go and keeps its targets, the last layer has new
    # gradients, and the inputs of both layers are still there, the second of which is ReLU's result
    expected = {"0": 12 * 8 * FLOAT, "1": 12 * 16 * FLOAT, "MSELoss": 12 * FLOAT}
    assert {row["module"]: row["bytes"] for row in memory["activations"]} == expected
    assert sizes["activations"] == sum(expected.values())
    assert sizes["gradients"] == (16 + 1) * FLOAT


def test_the_parts_add_up_to_the_peak(memory):
    assert sum(memory["bytes"].values()) == memory["peak_bytes"]
    assert "fragmentation_bytes" not in memory


def test_with_accumulation_the_gradients_of_the_micro_batch_before_are_there(tmp_path):
    write_workload(tmp_path, log_every=2)
    assert train_here(tmp_path, *LINE, "--steps", 3, "--batch-size", 6) == 0
    sizes = summary(tmp_path / "runs/cfg")["memory"]["bytes"]
    assert sizes["gradients"] == WEIGHTS, "in the second backward, into which the first one's are added"


def test_a_shorter_run_says_that_it_was_too_short(tmp_path):
    write_workload(tmp_path)
    assert train_here(tmp_path, *LINE, "--steps", 2) == 0
    assert summary(tmp_path / "runs/cfg")["memory"] == {"because": "fewer than 3 steps were trained"}


def course(micro_batch=4):
    return SimpleNamespace(order=SimpleNamespace(micro_batch=micro_batch), progress=SimpleNamespace(step=3))


def steps(census, found, number):
    for _ in range(number):
        found.run([Micro(batch(4), 1.0)])
        census.advance()


def test_a_step_that_was_done_again_with_less_is_watched_once_more():
    found, around = stepper(nn.Linear(6, 1).double()), course()
    census = Census(found, around)
    steps(census, found, 2)
    around.order.micro_batch = 2
    steps(census, found, 1)
    assert census.wanted
    steps(census, found, 1)
    assert census.found.activations


def test_gradients_in_views_of_a_bucket_have_its_memory_all_the_time():
    """As DDP leaves them: what backward has filled in by then tells nothing of what is held."""
    model = nn.Linear(6, 1).double()
    found = stepper(model)
    census = Census(found, course())
    steps(census, found, 2)
    found.run([Micro(batch(4), 1.0)])
    bucket = torch.zeros(16, dtype=torch.float64)
    model.weight.grad, model.bias.grad = bucket[:6].view(1, 6), bucket[6:7]
    census.advance()
    assert census.found.gradients == bucket.nbytes


def test_nothing_of_the_watching_stays():
    model = nn.Linear(6, 1).double()
    found = stepper(model)
    census = Census(found, course())
    steps(census, found, 2)
    for parameter in model.parameters():
        get_gradient_edge(parameter).node.metadata["watched"] = True
    steps(census, found, 1)
    seen = dict(census.found.activations)
    before = len(nn.modules.module._global_forward_pre_hooks), len(nn.modules.module._global_forward_hooks)
    assert before == (0, 0)
    # an empty dict of hooks would be looked through in every later backward, once for each parameter
    assert all(parameter._post_accumulate_grad_hooks is None for parameter in model.parameters())
    assert not any(get_gradient_edge(parameter).node.metadata for parameter in model.parameters()), "an old node lives"
    steps(census, found, 2)
    assert census.found.activations == seen


def test_a_step_that_failed_meanwhile_leaves_no_hook():
    found = stepper(nn.Linear(6, 1).double())
    census = Census(found, course())
    steps(census, found, 2)
    census.close()
    assert not nn.modules.module._global_forward_pre_hooks
    assert census.document() == {"because": "fewer than 3 steps were trained"}


def test_compiled_code_keeps_what_cannot_be_watched():
    model = nn.Linear(6, 1).double()
    found = stepper(model)
    found.parts = replace(found.parts, forward=SimpleNamespace(_orig_mod=model))
    census = Census(found, course())
    census.advance()
    census.advance()
    found.parts = replace(found.parts, forward=model)
    steps(census, found, 1)
    told = census.document()
    assert "compiled code" in told["because"]
    assert "activations" not in told["bytes"]
    assert sum(told["bytes"].values()) == told["peak_bytes"]


def test_tied_weights_count_once():
    model = nn.Sequential(nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False))
    model[1].weight = model[0].weight
    assert owned(stepper(model)) == {"weights": 6 * 6 * FLOAT, "gradients": 0, "optimizer": 0}


def test_what_is_reserved_beyond_the_peak_is_fragmentation():
    found = PeakComposition(
        step=3, peak_bytes=100, weights=10, gradients=10, optimizer=20, activations={"a": 30}, reserved_bytes=130
    )
    told = found.document()
    assert told["fragmentation_bytes"] == 30
    assert told["bytes"] == {"weights": 10, "gradients": 10, "optimizer": 20, "activations": 30, "rest": 30}
