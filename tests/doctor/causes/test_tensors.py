from tests.doctor.causes.judge import first, first_is, ids, never, report_of, silent, verdict_is


def test_a_loss_that_is_not_a_number_is_no_overflow_where_no_precision_is_said():
    text = "Epoch: [3] lr: 0.0001 loss: 0.31\nLoss is nan, stopping training"
    report = report_of(text)
    assert [f.id for f in report.findings] == ["loss_nan"]
    half = report_of(f"{text}\nusing fp16=True").findings[0]
    assert (half.id, half.confidence > report.findings[0].confidence) == ("fp16_overflow_nan", True)


def test_more_tokens_than_rows_are_counted():
    error = "RuntimeError: CUDA error: device-side assert triggered"
    assert first(f"config: vocab_size = 32000\nlen(tokenizer) = 32003\n{error}") == "embedding_index_out_of_range"
    fits = f"config: vocab_size = 32000\nlen(tokenizer) = 32000\n{error}"
    assert "32000 tokens for" not in str(ids(fits))


test_a_fault_of_the_program_is_named = first_is([
    ("label_out_of_range", "  loss = F.cross_entropy(out, y)\nRuntimeError: CUDA error: device-side assert triggered"),
    ("embedding_index_out_of_range", "  File modeling_gpt2.py, inputs_embeds = self.wte(input_ids)\nRuntimeError: CUDA error: device-side assert triggered"),
    ("embedding_index_out_of_range", "/tmp/inductor/c2.py:8: unknown: block: [1,0,0] Assertion `index out of bounds: 0 <= tmp9 < 32100` failed."),
    ("fp16_overflow_nan", "The gradient norm becomes nan after 3000 steps of training with opt-level O2, with O0 it does not"),
    ("fp16_overflow_nan", "训练用了混合精度, 后来 grad norm is nan"),
    ("fp16_overflow_nan", "WARNING: The grad norm is inf. Skipping the update.\n" * 5),
    ("illegal_memory_access", "NVRM: Xid (PCI:0000:41:00): 31, pid=900, name=python3, Ch 00000010, intr 00000000. MMU Fault"),
    ("fp16_overflow_nan", "epoch 3 step 120 loss: nan\nusing fp16=True"),
    ("fp16_overflow_nan", "\n".join(f"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {2.0 ** e}" for e in range(5, -10, -1))),
    ("embedding_index_out_of_range", "indexSelectLargeIndex: block: [1,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\nRuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),  # an index fault explains the library error that follows it
    ("fp16_overflow_nan", "with mixed precision on, the network returns nan from the second epoch on"),
    ("fp16_overflow_nan", "under autocast the loss value will become NaN after ten epochs, in float32 it does not"),
    ("fp16_overflow_nan", "with precision='16-mixed' I get nan at every step"),
    ("fp16_overflow_nan", "in amp mode hidden states are overflowing to inf"),
    ("embedding_index_out_of_range", "I trained my own tokenizer for the run and now get cuda runtime error (59) : device-side assert triggered"),
    ("embedding_index_out_of_range", "Token indices sequence length is longer than the specified maximum sequence length for this model (623 > 512). Running this sequence through the model will result in indexing errors\nCUDA error: unspecified"),  # a sequence longer than the positions is counted
])  # fmt: skip
test_what_follows_from_another_fault_is_not_named = never([
    ("oom_masked_as_library_error", "indexSelectLargeIndex: block: [1,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\nRuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),  # an index fault explains the library error that follows it
    ("fp16_overflow_nan", "Training in float32, the loss becomes nan after 100 steps"),  # a loss in full precision that is not a number has another cause
])  # fmt: skip
test_nor_is_it_mentioned = never([
    ("fp16_overflow_nan", "the model returns nan for empty inputs, all in float32"),  # a number that is not finite without half precision is no overflow
], seen=ids)  # fmt: skip
test_what_is_no_fault_names_nothing = silent([
    "epoch 1 loss 2.1\nWARNING: The grad norm is inf. Skipping the update.\nepoch 2 loss 1.4\nepoch 3 loss 1.1",  # one skipped step is a scaler that settles
])  # fmt: skip
test_what_is_well_is_healthy = verdict_is(("healthy",), [
    "step 1 loss: 7.1\nGradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\nstep 2 loss: 6.9",  # a scaler that settles is no fault
])  # fmt: skip
