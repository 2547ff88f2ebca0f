import torch
from torch import nn

from gpudoc.plan.emulate import movable_modules, onednn_lstm, overriding
from gpudoc.plan.tracing import Recipe, record


def test_an_override_holds_only_inside_its_block():
    value = torch.ones(3, requires_grad=True)
    with overriding([("dropout", "AutogradCPU", lambda value, share, train: value * 7)]):
        assert torch.dropout(value, 0.5, True).tolist() == [7, 7, 7]
    assert torch.dropout(value, 0.5, False).tolist() == [1, 1, 1]


def test_an_operation_this_torch_lacks_is_left_out():
    with overriding([("no_such_operation", "AutogradCPU", lambda: None)]):
        pass


def test_the_layered_lstm_computes_what_torch_does():
    torch.manual_seed(0)
    lstm = nn.LSTM(5, 7, num_layers=2, batch_first=True, bidirectional=True)
    value = torch.randn(3, 4, 5)
    expected, (hidden, cell) = lstm(value)
    zeros = torch.zeros(4, 3, 7)
    out, h, c = onednn_lstm(value, (zeros, zeros), lstm._flat_weights, True, 2, 0.0, False, True, True)
    assert torch.allclose(out, expected, atol=1e-5)
    assert torch.allclose(h, hidden, atol=1e-5)
    assert torch.allclose(c, cell, atol=1e-5)


def test_an_lstm_is_traced_as_one_operation_per_layer():
    recipe = Recipe(
        build=lambda: nn.LSTM(8, 8, num_layers=3),
        batch=lambda n: torch.randn(20, n, 8),
        step=lambda model, value: model(value)[0].sum().backward(),
    )
    work = [item.op for item in record(recipe, 4).work]
    assert work.count("mkldnn_rnn_layer") == 3


def test_an_lstm_with_projections_goes_its_own_way():
    recipe = Recipe(
        build=lambda: nn.LSTM(8, 8, proj_size=4),
        batch=lambda n: torch.randn(5, n, 8),
        step=lambda model, value: model(value)[0].sum().backward(),
    )
    assert record(recipe, 4).peak_bytes() > 0


def test_modules_move_and_keep_their_parameters():
    model = nn.Linear(3, 3)
    weight = model.weight
    with movable_modules():
        model.to(torch.float64)
    assert model.weight is weight
    assert model.weight.dtype is torch.float64
