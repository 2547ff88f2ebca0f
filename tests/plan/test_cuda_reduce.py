"""gpudoc/plan/cuda_reduce.py against sizes that PyTorch 2.9.1 asked its allocator for, with 132 multiprocessors."""

import pytest

from gpudoc.plan.cuda_reduce import buffer_bytes, semaphore_bytes

# outputs, inputs of each, bytes of a number, bytes of partial results, bytes of counters
SEEN = [
    (384, 10240, 2, 31457280, 12),
    (1536, 10240, 2, 125829120, 48),
    (768, 10240, 2, 62914560, 24),
    (512, 4096, 4, 16777216, 16),
    (8192, 2048, 2, 134217728, 256),
    (256, 2048, 2, 4194304, 8),
]


@pytest.mark.parametrize(("outputs", "inputs", "item", "buffer", "counters"), SEEN)
def test_partial_results_of_outputs_that_lie_side_by_side(outputs, inputs, item, buffer, counters):
    assert buffer_bytes(outputs, inputs, item, 0) == buffer
    assert semaphore_bytes(outputs, inputs, item, 0) == counters


def test_a_short_sum_needs_one_thread_block_and_no_scratch():
    assert buffer_bytes(384, 16, 4, 0) == semaphore_bytes(384, 16, 4, 0) == 0


def test_sums_along_rows_keep_one_number_for_each_thread_block():
    assert 0 < buffer_bytes(4, 1 << 24, 4, 1) < 1 << 20


def test_what_32_bits_cannot_index_is_summed_in_pieces():
    assert buffer_bytes(1536, 1 << 21, 2, 0) == buffer_bytes(1536, 1 << 19, 2, 0) > 0
