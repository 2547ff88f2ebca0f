import torch

from gpudoc.plan.cuda_rules import embedding_backward, rnn_layer


def test_summing_equal_rows_sorts_copies_of_the_indices():
    assert embedding_backward((torch.empty(8, 4), torch.zeros(8, dtype=torch.long)), None).pulse_bytes == 4 * 8 * 8


def test_cudnn_keeps_six_numbers_per_step_and_unit_when_training():
    args = [torch.empty(16, 8, 64)] + [None] * 9 + [128] + [None] * 4
    assert rnn_layer([*args, True], None).held == {3: 6 * 16 * 8 * 128 * 4}
    assert rnn_layer([*args, False], None).held == {}
