from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, named, report_of

CASES = [
    ("label_out_of_range", "  loss = F.cross_entropy(out, y)\nRuntimeError: CUDA error: device-side assert triggered"),
    ("embedding_index_out_of_range", "  File modeling_gpt2.py, inputs_embeds = self.wte(input_ids)\nRuntimeError: CUDA error: device-side assert triggered"),
    ("embedding_index_out_of_range", "/tmp/inductor/c2.py:8: unknown: block: [1,0,0] Assertion `index out of bounds: 0 <= tmp9 < 32100` failed."),
    ("fp16_overflow_nan", "The gradient norm becomes nan after 3000 steps of training with opt-level O2, with O0 it does not"),
    ("fp16_overflow_nan", "训练用了混合精度, 后来 grad norm is nan"),
    ("fp16_overflow_nan", "WARNING: The grad norm is inf. Skipping the update.\n" * 5),
    ("illegal_memory_access", "NVRM: Xid (PCI:0000:41:00): 31, pid=900, name=python3, Ch 00000010, intr 00000000. MMU Fault"),
    ("fp16_overflow_nan", "epoch 3 step 120 loss: nan\nusing fp16=True"),
    ("fp16_overflow_nan", "\n".join(f"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {2.0 ** e}" for e in range(5, -10, -1))),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_a_fault_of_the_program_is_named(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


def test_an_index_fault_explains_the_library_error_that_follows_it():
    text = (
        "indexSelectLargeIndex: block: [1,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
    )
    assert ids(text)[0] == "embedding_index_out_of_range"
    assert "oom_masked_as_library_error" not in named(text)


def test_a_scaler_that_settles_is_no_fault():
    text = "step 1 loss: 7.1\nGradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\nstep 2 loss: 6.9"
    assert report_of(text).verdict == "healthy"


def test_one_skipped_step_is_a_scaler_that_settles():
    text = "epoch 1 loss 2.1\nWARNING: The grad norm is inf. Skipping the update.\nepoch 2 loss 1.4\nepoch 3 loss 1.1"
    assert not [f.id for f in report_of(text).findings if f.severity != "info"]


IN_WORDS = [
    ("fp16_overflow_nan", "with mixed precision on, the network returns nan from the second epoch on"),
    ("fp16_overflow_nan", "under autocast the loss value will become NaN after ten epochs, in float32 it does not"),
    ("fp16_overflow_nan", "with precision='16-mixed' I get nan at every step"),
    ("fp16_overflow_nan", "in amp mode hidden states are overflowing to inf"),
    ("embedding_index_out_of_range", "I trained my own tokenizer for the run and now get cuda runtime error (59) : device-side assert triggered"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), IN_WORDS)
def test_a_fault_of_the_program_is_understood_from_a_sentence(cause, text):
    assert first(text) == cause


def test_a_number_that_is_not_finite_without_half_precision_is_no_overflow():
    assert "fp16_overflow_nan" not in ids("the model returns nan for empty inputs, all in float32")


def test_a_loss_that_is_not_a_number_is_named_with_little_confidence_when_no_precision_is_told():
    report = report_of("Epoch: [3] lr: 0.0001 loss: 0.31\nLoss is nan, stopping training")
    assert [(f.id, f.severity) for f in report.findings][:1] == [("fp16_overflow_nan", "warning")]
    assert report.findings[0].confidence < 0.5


def test_a_loss_in_full_precision_that_is_not_a_number_has_another_cause():
    text = "Training in float32, the loss becomes nan after 100 steps"
    assert "fp16_overflow_nan" not in [f.id for f in report_of(text).findings if f.severity != "info"]


def test_more_tokens_than_rows_are_counted():
    error = "RuntimeError: CUDA error: device-side assert triggered"
    assert first(f"config: vocab_size = 32000\nlen(tokenizer) = 32003\n{error}") == "embedding_index_out_of_range"
    fits = f"config: vocab_size = 32000\nlen(tokenizer) = 32000\n{error}"
    assert "32000 tokens for" not in str(ids(fits))


def test_a_sequence_longer_than_the_positions_is_counted():
    text = (
        "Token indices sequence length is longer than the specified maximum sequence length for this model "
        "(623 > 512). Running this sequence through the model will result in indexing errors\nCUDA error: unspecified"
    )
    assert first(text) == "embedding_index_out_of_range"
