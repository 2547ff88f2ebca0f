from __future__ import annotations

import math

import pytest

from gpudoc.facts.readers import read
from gpudoc.facts.readers.losses import read_losses


def values(text: str) -> list[str]:
    return [f"{loss.value:g}" for loss in read_losses(read(text).text.lines)]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("step 100 loss nan", "nan"),
        ("iter 3: loss: 3.2e+01", "32"),
        ("{'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.1}", "2.31"),
        ('{"train_loss": -Infinity, "step": 4}', "-inf"),
        ("Epoch 0:  70%|███████   | 70/100 [00:08<00:04,  1.8it/s, loss=nan, v_num=3]", "nan"),
        ("120/120 [=====] - 12s 98ms/step - loss: 0.9012 - val_loss: 0.8120", "0.9012"),
        ("Epoch: [0][10/500] Time 1.21 (1.30) Loss 4.1012 (4.9)", "4.1012"),
        ("epoch 3 | train loss 2.25 | val loss 9.75", "2.25"),
        ("loss: tensor(nan, device='cuda:0', grad_fn=<NllLossBackward0>)", "nan"),
        ("Loss is nan, stopping training", "nan"),
        ("loss_cls: 1.25, loss_bbox: 0.5, loss: 1.75", "1.75"),
    ],
)
def test_a_loss_is_read_from_the_line_of_any_logger(line, value):
    assert values(line) == [value]


@pytest.mark.parametrize("line", [
    "Gradient overflow. Skipping step, loss scaler 0 reducing loss scale to 4.0",
    "loss_scale: 65536.0", "val_loss: 0.4", "validation loss 0.4", "best loss: 0.3", "loss went down", "lossless 4",
])  # fmt: skip
def test_what_is_no_training_loss_is_left_out(line):
    assert values(line) == []


def test_a_column_of_a_table_is_read_by_its_heading():
    table = (
        "epoch  train_loss  val_loss\n-----  ----  ---\n1      2.31        2.40\n2      nan         nan\n\n3 other 4\n"
    )
    assert values(table) == ["2.31", "nan"]
    assert values("| epoch | loss |\n|---|---|\n| 1 | 2.5 |\n| 2 | 2.25 |\n") == ["2.5", "2.25"]


def test_a_loss_keeps_its_line_and_step():
    first, last = read_losses(read("lr 0.1\nstep 10 loss 2.5\nstep 20 loss nan").text.lines)
    assert (first.step, first.line.number, first.is_number) == (10, 2, True)
    assert (last.step, last.line.number, last.is_number) == (20, 3, False)
    assert math.isnan(last.value)


@pytest.mark.parametrize(
    "text",
    [
        "0 2.3\n1 2.1\n2 nan\n3 nan\n",
        "step 0 2.3\nstep 1: 2.1\nstep 2: nan\nstep 3 nan\n",
        "starting\n[1/10] 2.3\n[2/10] 2.1\n[3/10] nan\n[4/10] nan\n",
        "epoch 1 batch 0, 2.3\nepoch 1 batch 1, 2.1\nepoch 1 batch 2, nan\nepoch 1 batch 3, nan\n",
        "2.3\n2.1\nnan\nnan\n",
    ],
)
def test_values_behind_a_step_are_losses_where_they_end_in_nan(text):
    assert values(text) == ["2.3", "2.1", "nan", "nan"]


@pytest.mark.parametrize(
    "text",
    [
        "0 2.3\n1 2.1\n2 2.0\n",
        # a table of figures, which has gaps
        "0 nan\n1 2.1\n2 nan\n3 2.0\n",
        # pandas writes it in its own way
        "0 NaN\n1 NaN\n2 NaN\ndtype: float64\n",
        "0 2.3\n1 nan\n",
        "accuracy nan\nf1 nan\n",
    ],
)
def test_other_columns_of_figures_are_no_losses(text):
    assert values(text) == []


@pytest.mark.parametrize(
    ("line", "early"),
    [
        ("step 3 loss nan", True),
        ("iter 300 loss nan", False),
        ("epoch 0: train_loss nan", True),
        ("Epoch 1/10 loss: nan", True),
        ("train_loss=nan after epoch 3, using bf16", False),
        ("loss nan", False),
    ],
)
def test_a_later_epoch_is_none_of_the_first_steps(line, early):
    (loss,) = read_losses(read(line).text.lines)
    assert loss.is_of_first_steps is early
