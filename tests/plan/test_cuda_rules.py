import pytest
import torch

from gpudoc.plan.cuda_rules import attention, attention_backward, embedding_backward, reduced_loss, reduction, rnn_layer
from gpudoc.plan.tracing import Recipe, record


def sizes(extra):
    return [block.size_bytes for block in extra.scratch]


def test_summing_equal_rows_sorts_copies_of_the_indices_and_adds_in_pieces():
    # seen with torch 2.9.1 for 20 x 512 indices of 64 bits into 8192 rows of 384: blocks that live at the peak
    indices = torch.zeros(20, 512, dtype=torch.long)
    extra = embedding_backward((torch.empty(20, 512, 384), indices, 8192, -1, False), None)
    assert sizes(extra) == [81920, 81920, 81920, 65536, 65536, 73728, 14155776]


def test_few_indices_are_added_one_by_one():
    extra = embedding_backward((torch.empty(512, 384), torch.zeros(512, dtype=torch.long), 8192, -1, False), None)
    assert sum(sizes(extra)) == 0


@pytest.mark.parametrize("rows", [64, 128])
def test_a_rule_that_is_no_line_in_the_batch_says_how_to_compute_it(rows):
    value = torch.empty(rows * 512, 384, dtype=torch.bfloat16)
    buffer, counters = reduction((value, [0]), torch.empty(1, 384)).scratch
    assert buffer.formula.of(*buffer.formula.dims) == buffer.size_bytes
    assert counters.size_bytes == 12


def test_a_bias_gradient_is_summed_by_many_thread_blocks():
    # seen with torch 2.9.1 on 132 multiprocessors
    value = torch.empty(10240, 384, dtype=torch.bfloat16)
    assert sizes(reduction((value, [0], True), torch.empty(1, 384))) == [31457280, 12]


def test_attention_in_16_bits_keeps_float32_sums_of_padded_rows():
    # seen with torch 2.9.1
    query = torch.empty(20, 6, 512, 64, dtype=torch.bfloat16)
    assert sizes(attention_backward((None, query), None)) == [245760, 15728640]


def test_attention_in_16_bits_keeps_the_state_of_its_random_numbers():
    assert attention((torch.empty(1, dtype=torch.float16),), None).beside == {1: (16, 8)}
    assert attention((torch.empty(1),), None).beside == {}


def test_attention_in_32_bits_adds_gradients_tile_by_tile():
    # seen with torch 2.9.1: 131,072 twice, and 8,396,800 for the tiles
    query = torch.empty(16, 8, 256, 64)
    assert sizes(attention_backward((None, query), None)) == [8396800, 131072, 131072]


def test_a_loss_is_computed_for_every_element_before_it_is_reduced():
    picture = torch.empty(4, 3, 64, 64)
    assert sizes(reduced_loss((picture, picture), torch.empty(()))) == [4 * 3 * 64 * 64 * 4]
    assert sizes(reduced_loss((picture, picture), torch.empty(4, 3, 64, 64))) == []
    recipe = Recipe(
        build=lambda: torch.nn.Linear(64, 64),
        batch=lambda n: torch.randn(n, 64),
        step=lambda model, value: torch.nn.functional.mse_loss(model(value), value).backward(),
        like="cuda",
    )
    assert [b.size_bytes for b in record(recipe, 32).blocks if b.op == "mse_loss"] == [4, 32 * 64 * 4] * 2


def test_cudnn_keeps_six_numbers_per_step_and_unit_when_training():
    args = [torch.empty(16, 8, 64)] + [None] * 9 + [128] + [None] * 4
    assert rnn_layer([*args, True], None).held == {3: 6 * 16 * 8 * 128 * 4}
    assert rnn_layer([*args, False], None).held == {}
