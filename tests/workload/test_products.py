"""Which operations are products; what they cost is tested where a step is counted."""

import pytest
import torch

from gpudoc.workload.products import is_product

ATEN = torch.ops.aten


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        (ATEN.mm.default, True),
        (ATEN.addmm.default, True),
        (ATEN.bmm.default, True),
        (ATEN.convolution.default, True),
        (ATEN._scaled_dot_product_flash_attention.default, True),
        (ATEN._scaled_dot_product_efficient_attention.default, True),
        (ATEN._scaled_dot_product_flash_attention_for_cpu.default, True),
        (ATEN.gelu.default, False),
        (ATEN.native_layer_norm.default, False),
        (ATEN.native_dropout.default, False),
        (torch.cond, False),
    ],
)
def test_products_are_what_arithmetic_costs_time_in(operation, answer):
    assert is_product(operation) is answer
