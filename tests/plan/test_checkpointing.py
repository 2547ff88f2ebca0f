import torch
from torch import nn

from gpudoc.plan.checkpointing import checkpoint_blocks
from tests.plan.zoo import GPT, mlp


def test_repeated_blocks_are_recomputed_and_give_the_same_gradients():
    torch.manual_seed(0)
    plain, saving = GPT(50, 32, 2, 2, 8), GPT(50, 32, 2, 2, 8)
    saving.load_state_dict(plain.state_dict())
    assert checkpoint_blocks(saving) == 2
    tokens = torch.randint(0, 50, (2, 8))
    for model in (plain, saving):
        model(tokens).square().mean().backward()
    for a, b in zip(plain.parameters(), saving.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, atol=1e-6)


def test_a_model_without_blocks_is_left_alone():
    assert checkpoint_blocks(mlp(16)) == 0


def test_a_model_with_its_own_switch_is_asked():
    class Own(nn.Module):
        asked = False

        def gradient_checkpointing_enable(self):
            self.asked = True

    model = Own()
    assert checkpoint_blocks(model) == 1
    assert model.asked
