import torch
from torch import nn

from gpudoc.plan.tracing import Recipe, record


def step(model, inputs):
    model(inputs).sum().backward()


def test_a_matrix_product_costs_two_operations_per_multiply_add():
    recipe = Recipe(build=lambda: nn.Linear(32, 64, bias=False), batch=lambda n: torch.randn(n, 32), step=step)
    work = record(recipe, 10).work
    products = [item for item in work if item.op == "mm"]
    assert [item.flops for item in products] == [2 * 10 * 32 * 64] * 2  # forward, and the weight's gradient
    assert products[0].moved_bytes == 4 * (10 * 32 + 32 * 64 + 10 * 64)
    assert {item.dtype for item in products} == {"float32"}


def test_fused_attention_is_counted():
    class Mix(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = nn.Parameter(torch.randn(2, 4, 16, 8))

        def forward(self, value):
            return nn.functional.scaled_dot_product_attention(self.query, value, value)

    recipe = Recipe(build=Mix, batch=lambda n: torch.randn(2, 4, 16, 8), step=step)
    work = {item.op: item.flops for item in record(recipe, 1).work}
    forward = 2 * 2 * 4 * 16 * 16 * (8 + 8)
    assert work["_scaled_dot_product_flash_attention_for_cpu"] == forward
    assert work["_scaled_dot_product_flash_attention_for_cpu_backward"] == forward * 5 // 2


def test_views_do_no_work():
    recipe = Recipe(build=lambda: nn.Linear(4, 4), batch=lambda n: torch.randn(n, 4).t().t(), step=step)
    assert not [item for item in record(recipe, 2).work if item.op in ("t", "view", "detach", "expand")]
