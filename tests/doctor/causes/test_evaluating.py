"""Memory that runs out in an evaluation: graphs or results, by whose loop it is."""

from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, named


@pytest.mark.parametrize(
    "text",
    [
        "transformers version: 4.30. Training is fine, CUDA out of memory in evaluation, compute_metrics is set",
        "LLaMA-Factory：训练正常，一到 eval 阶段就 OOM",
        "Evaluation always ends in OOM at 87% of the validation set whatever the batch size",
    ],
)
def test_a_loop_without_gradients_keeps_results(text):
    assert first(text) == "oom_eval_accumulates_predictions"


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory as soon as validation starts, I wrote the loop myself",
        "GPU memory goes up with each validation batch until CUDA out of memory",
        "Code of PyTorch 0.3.1 runs, in PyTorch 0.4.0 the same is out of memory: CUDA error: out of memory",
        "UserWarning: volatile was removed and now has no effect.\nCUDA out of memory",
        "自己写的验证代码，验证时 CUDA out of memory",
    ],
)
def test_a_loop_of_ones_own_keeps_graphs(text):
    assert first(text) == "oom_eval_without_no_grad"


def test_memory_that_runs_out_in_training_is_not_the_evaluations():
    text = "transformers version: 4.30. CUDA out of memory in the first training step with batch size 16"
    assert not {"oom_eval_accumulates_predictions", "oom_eval_without_no_grad"} & set(ids(text)[:1])


def test_two_versions_of_torch_without_trouble_are_only_named():
    assert "oom_eval_without_no_grad" not in named("Does it work with PyTorch 0.3.1 as well as with PyTorch 0.4.0?")
