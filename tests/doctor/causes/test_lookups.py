"""Indices beyond what they index: classes and rows, told apart by what the text is about."""

from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, named

SCATTER = (
    "THCTensorScatterGather.cu:188: block: [1,0,0], thread: [3,0,0] Assertion `indexValue >= 0 && indexValue < "
    "tensor.sizes[dim]` failed."
)


def test_an_index_kernel_fails_on_a_class_where_masks_are_spoken_of():
    assert first(f"num_class is 2 and each mask has one channel\n{SCATTER}") == "label_out_of_range"


def test_an_index_kernel_fails_on_a_row_where_tokens_are_spoken_of():
    assert first(f"the vocab of my tokenizer has 64 k tokens\n{SCATTER}") == "embedding_index_out_of_range"


@pytest.mark.parametrize(
    "text",
    [
        "InvalidArgumentError: Received a label value of 12 which is outside the valid range of [0, 12).",
        "AssertionError: Label class 7 exceeds nc=7 in data.yaml. Possible class labels are 0-6",
        "ValueError: label must be in [0, num_class).",
        "segmentation, the masks have two classes, training ends in CUDA error: device-side assert triggered",
    ],
)
def test_a_class_that_does_not_exist_is_named_by_each_library(text):
    assert first(text) == "label_out_of_range"


def test_new_tokens_without_new_rows_are_out_of_range():
    added = "tokenizer.add_special_tokens({'additional_special_tokens': ['<a>']})"
    error = "CUDA error: device-side assert triggered"
    assert first(f"{added}\n{error}") == "embedding_index_out_of_range"
    assert first(f"{added}\nRuntimeError: CUBLAS_STATUS_NOT_INITIALIZED") == "embedding_index_out_of_range"


def test_new_tokens_with_new_rows_are_not_the_reason():
    text = "tokenizer.add_tokens(['<a>'])\nmodel.resize_token_embeddings(len(tokenizer))\nMy training is slow, why?"
    assert "embedding_index_out_of_range" not in named(text)


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


def test_tensorflow_names_the_row_that_is_missing():
    assert first("InvalidArgumentError: indices[3,17] = 5001 is not in [0, 5001)") == "embedding_index_out_of_range"


def test_an_input_longer_than_the_positions_is_told():
    text = "CUDA error: device-side assert triggered as soon as the input is longer than 512 tokens"
    assert first(text) == "embedding_index_out_of_range"
    assert "embedding_index_out_of_range" not in named("Training is slow when the input is longer than 512 tokens")
