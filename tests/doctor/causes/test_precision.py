"""Mixed precision gone wrong in the words of apex, of code and of logs."""

from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, named


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: Found param encoder.weight with type torch.cuda.HalfTensor, expected torch.cuda.FloatTensor.",
        "RuntimeError: \"_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16'",
    ],
)
def test_trained_weights_in_half_precision_are_named_whoever_refuses_them(text):
    assert first(text) == "amp_fp16_params_with_scaler"


def test_apex_refusing_a_model_on_the_cpu_is_something_else():
    text = "RuntimeError: Found param encoder.weight with type torch.FloatTensor, expected torch.cuda.FloatTensor."
    assert "amp_fp16_params_with_scaler" not in named(text)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: Invoked 'with amp.scale_loss`, but internal Amp state has not been initialized.",
        "AttributeError: 'Adam' object has no attribute '_amp_stash'",
        "RuntimeError: Closure use is not currently supported if GradScaler is enabled.",
        "I clip the gradients of my training but forgot unscaling before clip_grad_norm_ with the scaler",
        "Native AMP and the LBFGS optimizer are not compatible (optimizer 0).",
    ],
)
def test_a_scaler_that_is_called_wrongly_is_named_by_each_library(text):
    assert first(text) == "amp_scaler_misuse"


PAST = """My loss gets worse since I use mixed precision, my training loop:
with autocast():
    loss = net(x)
scaler.scale(loss).backward()
optimizer.step()
scaler.update()
"""
TWICE = """accuracy drops with this training code
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
optimizer.step()
"""
RIGHT = """accuracy drops with this training code
if half:
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
else:
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "text", [PAST, TWICE, PAST.replace("scaler.scale(loss)", "loss").replace("optimizer.st", "scaler.st")]
)
def test_code_that_steps_past_its_scaler_or_never_scales_is_seen(text):
    assert first(text) == "amp_scaler_misuse"


def test_code_that_chooses_between_scaler_and_none_is_right():
    assert "amp_scaler_misuse" not in named(RIGHT)


def test_a_line_of_a_traceback_is_no_loop():
    text = 'File "a.py", line 3, in step\n    scaler.step(optimizer)\n    loss.backward()\n    scaler.update()\n'
    assert "amp_scaler_misuse" not in named(text)


def test_a_scaled_loss_without_a_graph_has_no_gradients():
    said = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"
    assert first(f"training with precision 16\n{said}") == "amp_no_gradients"
    assert "amp_no_gradients" not in named(f"training on the CPU\n{said}")


@pytest.mark.parametrize(
    "text",
    [
        "epoch 3 of training\n2024-01-01 train_loss nan\n2024-01-01 val_loss nan",
        "{'loss': 1.2, 'grad_norm': nan, 'learning_rate': 1e-05} after some training steps",
        "训练到一半 loss 突然变成 nan 了",
        "training of my detector: ValueError: matrix contains invalid numeric entries",
    ],
)
def test_a_metric_that_is_no_number_speaks_of_overflow_first(text):
    assert first(text) == "fp16_overflow_nan"


def test_a_loss_that_is_no_number_in_full_precision_is_another_matter():
    assert "fp16_overflow_nan" not in named("training in float32, train_loss nan from the start on")


def test_losses_of_exactly_zero_under_half_precision_are_a_sign():
    rows = "\n".join("{'loss': 0.0, 'learning_rate': 2e-05, 'epoch': 0.1}" for _ in range(3))
    assert first(f"--fp16 True fine-tuning\n{rows}") == "fp16_overflow_nan"
    assert "fp16_overflow_nan" not in named(rows)


def test_a_scaler_without_gradients_shows_in_its_own_line():
    assert first('assert len(optimizer_state["found_inf_per_device"]) > 0') == "amp_no_gradients"


def test_unscaling_half_gradients_in_other_words():
    assert (
        first("Trainer with fp16: it fails when unscaling, FP16 gradients can't be handled")
        == "amp_fp16_params_with_scaler"
    )


@pytest.mark.parametrize(
    "text",
    [
        "My V100 can't do bf16, so I train in fp16: all losses are **nan**",
        "FP16 training gives nan losses and the card does not support bfloat16. What can I do?",
    ],
)
def test_half_precision_overflows_where_bf16_is_only_missed(text):
    assert first(text) == "fp16_overflow_nan"


def test_a_card_without_bf16_and_no_nan_is_about_bf16():
    assert first("RuntimeError: bf16 is not supported on this GPU, fp16 works in training") != "fp16_overflow_nan"


CLIPPED = """training does not converge with amp
scaler.scale(loss).backward()
torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
scaler.step(opt)
scaler.update()
"""


def test_gradients_clipped_while_they_are_scaled():
    assert first(CLIPPED) == "amp_scaler_misuse"
    right = CLIPPED.replace("torch.nn", "scaler.unscale_(opt)\ntorch.nn")
    assert "amp_scaler_misuse" not in named(right)


@pytest.mark.parametrize(
    "text",
    [
        "apex O1: gradient overflow in every step of my training, loss scaler drops to 0",
        "With fp16 the pictures are all black, in fp32 they are right",
    ],
)
def test_overflow_shows_in_the_scale_and_in_black_pictures(text):
    assert first(text) == "fp16_overflow_nan"


def test_black_pictures_alone_are_a_matter_of_taste():
    assert "fp16_overflow_nan" not in named("The training images are all black and white")


@pytest.mark.parametrize(
    "text",
    [
        "--precision half\n[Epoch 1]\nSkip this batch 2! (Loss: inf)",
        "mixed precision training: Train Summary | Epoch 3 | Grad=inf",
        "scaler.unscale_(optimizer) in my training: there are NaN values in the gradients",
        "My training collapses to NaNs after 20k iterations",
    ],
)
def test_what_is_beyond_every_number_in_half_precision(text):
    assert first(text) == "fp16_overflow_nan"


def test_an_infinite_loss_in_full_precision_is_another_matter():
    assert "fp16_overflow_nan" not in named("training in double precision, Loss: inf")
