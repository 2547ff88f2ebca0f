from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, first_is, ids, report_of, verdict_is


def log(*losses: object, line: str = "step {n} loss {loss}\n") -> str:
    return "".join(line.format(n=10 * n, loss=loss) for n, loss in enumerate(losses))


GROWTH = (4.2, 4.8, 6.1, 12.9, 88.0, 391.0)
FALL = tuple(round(2.3 - n / 20, 3) for n in range(8))
HUGGING_FACE = "{{'loss': {loss}, 'grad_norm': {loss}, 'learning_rate': 0.001, 'epoch': 0.{n}}}\n"
OVERFLOW = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {}\n"

test_the_figures_tell_what_made_a_loss_nan = first_is([
    ("loss_diverged", "lr 0.1, no amp, fp32\n" + log(*GROWTH, "nan", "nan")),
    ("loss_diverged", log(*GROWTH, "inf", "nan")),
    ("loss_diverged", log(*GROWTH, "nan", line=HUGGING_FACE)),
    ("loss_diverged", "training with amp\n" + log(*GROWTH, "nan")),
    ("loss_diverged", log(2.3, 2.2, 3.9, 55.0, 920.0, 18344.0, "9e6")),
    ("loss_diverged", "epoch  train_loss\n1 2.31\n2 5.90\n3 88.2\n4 1204.5\n5 nan\n"),
    ("loss_diverged", "--amp\nTrain: 0 Loss: 3.74 (3.74)\nTrain: 0 Loss: 41.6 (88.3)\nTest: [2/2] Loss: 19.1\nTrain: 1 Loss: nan\n"),
    ("loss_nan_sudden", log(*FALL, "nan", "nan")),
    ("loss_nan_sudden", "precision: fp32\n" + log(*FALL, "inf", "nan")),
    ("loss_nan_sudden", log(2.1, 2.4, 1.9, 2.6, "nan")),
    ("loss_nan_sudden", "My loss nan at the end, why?\n" + log(0.61, "nan", line="ep={n}4 lr=0.001 loss={loss} acc=0.8\n")),
    ("loss_nan_sudden", "Epoch 7: train loss 0.52, val loss 0.61\nEpoch 8: train loss nan, val loss nan\n"),
    ("loss_nan", "loss nan\nloss nan\nstep 100 loss nan\n"),
    ("loss_nan_from_start", "step 1 loss nan\nstep 2 loss nan\n"),
    ("loss_nan", "step 100 loss nan\nstep 200 loss nan\n"),
    ("loss_nan", "step 100 loss 2.1\nstep 200 loss nan\n"),
    ("loss_nan_in_data", log(*FALL) + "batch 9: input contains NaN: True\nstep 90 loss nan\n"),
    ("loss_nan_sudden", log(*FALL) + "checked: no NaN in the inputs\nstep 90 loss nan\n"),
    ("fp16_overflow_nan", "model.half(), no GradScaler\n" + log(*FALL, "inf", "nan")),
    ("fp16_overflow_nan", log(*FALL) + "".join(map(OVERFLOW.format, (8.0, 4.0, 2.0))) + "step 90 loss nan\n"),
])  # fmt: skip

test_losses_that_go_up_and_down_are_healthy = verdict_is(("healthy",), [
    log(2.3, 2.6, 2.1, 2.4, 1.9, 2.2, 1.8, 2.0),
    log(-0.02, 0.03, -0.01, 0.05, 0.02, -0.04, line="step {n} policy_loss {loss}\n"),
    log(0.01, 0.02, 0.04, 0.09, 0.2, 0.5),
    log(*FALL, line="epoch {n} loss {loss} nan-safe ok\n"),
])  # fmt: skip


@pytest.mark.parametrize("said", ["fp32", "no amp", "use_amp: False", "precision 32"])
def test_full_precision_rules_an_overflow_of_float16_out(said):
    assert "fp16_overflow_nan" not in ids(f"{said}\n" + log(*FALL, "nan"))


def test_a_divergence_shows_its_figures_and_advises_a_lower_rate():
    report = report_of("fp32\n" + log(*GROWTH, "nan"))
    first = report.findings[0]
    assert first.title == "The loss diverged: 4.2 grew to 391 and became nan"
    assert [(seen.value, seen.origin) for seen in first.evidence] == [
        ("4.8, 6.1, 12.9, 88, 391, nan", "line 3 to 8"),
        ("training in float32", "line 1"),
    ]
    assert "learning rate" in first.fix[0].say
    assert "clip" in first.fix[1].say.lower()


def test_an_overflow_of_float16_is_advised_to_scale_the_loss():
    report = report_of("model.half(), no GradScaler\n" + log(*FALL, "nan"))
    assert any("GradScaler" in step.say for step in report.findings[0].fix[:2])
    assert [finding.id for finding in report.findings] == ["fp16_overflow_nan"]


@pytest.mark.parametrize(("cause", "text"), [
    ("loss_nan", "12: -nan, -nan avg loss, 0.001000 rate, 3.4 seconds, 768 images\n"),
    ("loss_nan", "iter 40 tensor(nan, device='cuda:0', grad_fn=<NllLossBackward>)\n"),
    ("loss_nan_from_start", "Epoch gpu_mem box obj cls labels img_size\n0/299 4.21G nan nan nan 42 640: 100%|####| 120/120\n"),
    ("loss_nan_from_start", "My gradient norm is NaN in the very first step. What did I do wrong?"),
    ("loss_nan", "Does anybody else see NAN for rpn_loss? Everything is fine for the first 1000 iterations."),
    ("loss_nan", "Train loss: 1.8 -> 1.2 -> 0.9 -> NaN. I use AdamW."),
    ("loss_nan", "损失一开始正常，后来突然变成nan，求助"),
    ("loss_diverged", "step 100, loss = 2.31\nstep 200, loss = 1928312.25\nstep 300, loss = 83123123712.00\n"),
    ("loss_diverged", "loss: 1.2e+18 after 20 iterations"),
    ("loss_diverged", "Training diverges: the loss goes up to 1e12 within a few hundred steps, whatever I do."),
    ("loss_diverged", "The loss gets bigger and bigger, from 5 in the beginning to more than 100000."),
    ("fp16_overflow_nan", "With fp16 autocast the loss becomes nan after 2,000 steps; in fp32 the same seed trains fine."),
])  # fmt: skip
def test_losses_of_any_logger_and_in_words_are_read(cause, text):
    assert first(text) == cause


def test_no_half_precision_is_guessed_where_nobody_names_it():
    report = report_of("After about 5 epochs all losses turn to NaN. Learning rate 1e-3, Adam. What can I do?")
    assert "fp16_overflow_nan" not in [finding.id for finding in report.findings]


@pytest.mark.parametrize(("losses", "lines", "classes"), [
    ((2.303, 2.302, 2.304, 2.303, 2.303), "Epoch {}", 10), ((0.693, 0.694, 0.692, 0.693, 0.693), "Epoch {}", 2),
    # it may be learning yet, is no guessing, or moves
    ((2.303, 2.302, 2.304, 2.303, 2.303), "step {}0", None), ((0.12, 0.12, 0.12, 0.12, 0.12), "Epoch {}", None),
    ((2.35, 2.33, 2.31, 2.29, 2.27), "Epoch {}", None), ((2.303, 2.303, 2.303), "Epoch {}", None),
])  # fmt: skip
def test_a_loss_that_stays_what_guessing_gives_is_of_a_model_that_does_not_learn(losses, lines, classes):
    log = "\n".join(f"{lines.format(place)} loss {loss}" for place, loss in enumerate(losses, 1))
    found = {f.id: f.title for f in report_of(log).findings}
    assert found.keys() == ({"model_not_learning"} if classes else set())
    assert classes is None or f"guessing among {classes} classes" in found["model_not_learning"]


@pytest.mark.parametrize("loss", ["0.6931", "11.32"])
def test_a_loss_that_is_printed_the_same_each_time_does_not_change(loss):
    (found,) = report_of("\n".join(f"Epoch {place} loss {loss}" for place in range(1, 5))).findings
    assert (found.id, found.title) == (
        "model_not_learning",
        f"The loss does not change: {loss} in each of 4 log lines",
    )


@pytest.mark.parametrize("said", ["The loss of my model does not go down.", "准确率一直不变", "Модель не обучается"])
def test_who_says_that_a_model_does_not_learn_gets_what_to_check(said):
    report = report_of(said)
    assert report.verdict == "broken"
    assert report.findings[0].id == "model_not_learning"
    assert any("one batch" in step.say for step in report.findings[0].fix)
