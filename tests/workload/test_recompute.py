import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gpudoc.errors import GpudocError
from gpudoc.workload.flops import Counter
from gpudoc.workload.recompute import apply, can_recompute, find_blocks, policies_for


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


POLICIES = pytest.mark.parametrize(("policy", "count"), [(True, 3), ("selective", 3), ("blocks:2", 2)])


@POLICIES
def test_gradients_and_running_statistics_are_the_same_bit_for_bit(policy, count):
    plain, recomputed = tower(), tower()
    assert apply(recomputed, policy) == count
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


def test_the_first_blocks_are_computed_twice_where_only_so_many_are_wanted():
    model = tower()
    apply(model, "blocks:2")
    gradients(model)
    assert [block.calls for block in model.blocks] == [2, 2, 1]


def products_again(policy):
    model = tower()
    apply(model, policy)
    with Counter() as counter:
        gradients(model)
    return counter.again


def test_selectively_no_product_is_computed_twice():
    assert products_again("selective") == 0
    assert 0 < products_again("blocks:2") < products_again(True)


def test_a_later_policy_takes_the_place_of_an_earlier_one():
    model = tower()
    apply(model, "selective")
    apply(model, "blocks:1")
    apply(model, True)
    gradients(model)
    assert [block.calls for block in model.blocks] == [2, 2, 2]


def test_what_a_model_does_not_allow_says_what_it_would():
    with pytest.raises(GpudocError, match="blocks:4: the model has 3 repeated blocks") as refused:
        apply(tower(), "blocks:4")
    assert refused.value.hint == "--set activation_checkpointing=blocks:3"
    with pytest.raises(GpudocError, match="selective: the model has no repeated blocks"):
        apply(nn.Linear(2, 2), "selective")
    assert apply(nn.Linear(2, 2)) == 0
    assert policies_for(tower()) == (True, 3)
    assert policies_for(nn.Linear(2, 2)) == (False, 0)


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 64), nn.Linear(64, 8)

    def forward(self, x):
        return x + self.down(self.up(x).relu_())


def test_a_product_that_is_changed_in_place_names_the_block_and_the_way_out():
    model = nn.Sequential(InPlace(), InPlace())
    apply(model, "selective")
    with pytest.raises(GpudocError, match="does not suit InPlace, which changes a product in place") as refused:
        gradients(model)
    assert refused.value.hint == "--set activation_checkpointing=true"
    apply(model, True)
    gradients(model)


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
    assert policies_for(model) == (False, 0)
    for policy in ("selective", "blocks:2"):
        with pytest.raises(GpudocError, match=f"{policy}: the model recomputes through its own switch"):
            apply(model, policy)
    model.supports_gradient_checkpointing = False
    assert apply(model) == 3
    assert asked == [True]


class Switched(Tower):
    """Recomputes by its own switch, as transformers' models do, with what torch's checkpoint is to be told."""

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs=None):
        self.told = gradient_checkpointing_kwargs

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, **self.told) if hasattr(self, "told") else block(x)
        return self.head(x)


def test_a_switch_that_takes_arguments_is_told_to_keep_products():
    torch.manual_seed(0)
    plain, model = tower(), Switched()
    model.load_state_dict(plain.state_dict())
    assert policies_for(model) == (True, 0)
    apply(model, "selective")
    (grads, _), (grads_again, _) = gradients(plain), gradients(model)
    assert all(a.equal(b) for a, b in zip(grads, grads_again, strict=True))
    with Counter() as counter:
        gradients(model)
    with Counter() as once:
        gradients(tower())
    # the second forward is no work of the model's own, and has no product in it
    assert counter.model == once.model


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


@pytest.mark.parametrize("policy", [True, "selective", "blocks:1"])
def test_a_compiled_model_recomputes_with_the_same_gradients_and_running_statistics(policy):
    def train(recomputed, compiled):
        torch.manual_seed(0)
        model = Normalised()
        if recomputed:
            apply(model, policy)
        forward = torch.compile(model, backend="aot_eager") if compiled else model
        for _ in range(2):
            forward(torch.arange(32.0).view(4, 8)).sum().backward()
        return [*(p.grad for p in model.parameters()), *model.buffers()]

    plain, both = train(False, False), train(True, True)
    assert all(a.equal(b) for a, b in zip(plain, both, strict=True))
