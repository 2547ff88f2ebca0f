import torch
from torch import nn

from gpudoc.workload.recompute import apply, can_recompute, find_blocks


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Dropout(0.5), nn.Linear(64, 8))
        self.norm = nn.BatchNorm1d(8)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.norm(self.inner(x))


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def tower():
    torch.manual_seed(0)
    return Tower()


def gradients(model):
    torch.manual_seed(7)
    model(torch.ones(4, 8) * torch.arange(4).unsqueeze(1)).sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()], [b.clone() for b in model.buffers()]


def test_repeated_blocks_are_found_and_single_layers_are_not():
    model = tower()
    assert find_blocks(model) == list(model.blocks)
    plain = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    assert find_blocks(plain) == []
    assert not can_recompute(plain)


def test_gradients_and_running_statistics_are_the_same_bit_for_bit():
    plain, recomputed = tower(), tower()
    assert apply(recomputed) == 3
    (grads, buffers), (grads_again, buffers_again) = gradients(plain), gradients(recomputed)
    assert all(a.equal(b) for a, b in zip(grads, grads_again, strict=True))
    assert all(a.equal(b) for a, b in zip(buffers, buffers_again, strict=True))


def test_blocks_are_computed_twice_in_training_and_once_in_evaluation():
    model = tower()
    apply(model)
    gradients(model)
    assert [block.calls for block in model.blocks] == [2, 2, 2]
    with torch.no_grad():
        model.eval()(torch.ones(2, 8))
    assert [block.calls for block in model.blocks] == [3, 3, 3]


def test_names_in_the_state_do_not_change():
    names = list(tower().state_dict())
    model = tower()
    apply(model)
    assert list(model.state_dict()) == names


def test_a_model_with_its_own_switch_is_asked():
    model = tower()
    asked = []
    model.gradient_checkpointing_enable = lambda: asked.append(True)
    assert can_recompute(model)
    assert asked == []
    assert apply(model) == 1
    assert asked == [True]
    model.supports_gradient_checkpointing = False
    assert apply(model) == 3
    assert asked == [True]


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x, *, scale=1.0):
        return x + scale * self.norm(self.inner(x)).relu()


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Normed() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x, scale=0.5)
        return x


def test_a_compiled_model_recomputes_with_the_same_gradients_and_running_statistics():
    def train(recomputed, compiled):
        torch.manual_seed(0)
        model = Normalised()
        if recomputed:
            apply(model)
        forward = torch.compile(model, backend="aot_eager") if compiled else model
        for _ in range(2):
            forward(torch.arange(32.0).view(4, 8)).sum().backward()
        return [*(p.grad for p in model.parameters()), *model.buffers()]

    plain, both = train(False, False), train(True, True)
    assert all(a.equal(b) for a, b in zip(plain, both, strict=True))
