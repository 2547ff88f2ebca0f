import pytest
import torch

from gpudoc.bench.cases.checks import check_copy, check_product


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_right_product_passes_and_one_wrong_tile_does_not(dtype):
    left, right = (torch.randn(512, 512).to(dtype) for _ in range(2))
    out = left @ right
    epsilon = torch.finfo(dtype).eps
    assert check_product(left, right, out, epsilon) == ""
    out[:128, :128] = 0
    assert "off by" in check_product(left, right, out, epsilon)


def test_rounded_inputs_are_allowed_what_their_rounding_explains():
    left, right = (torch.randn(256, 256) for _ in range(2))
    out = left.bfloat16().float() @ right.bfloat16().float()
    assert check_product(left, right, out) != ""
    assert check_product(left, right, out, input_epsilon=2.0**-8) == ""


def test_integers_must_be_exact():
    left, right = (torch.randint(-127, 127, (64, 64), dtype=torch.int8) for _ in range(2))
    out = left.int() @ right.int()
    assert check_product(left, right, out) == ""
    assert "integer" in check_product(left, right, out + 1)


def test_a_copy_with_one_changed_byte_or_two_swapped_ends_is_found():
    source = torch.randint(0, 256, (64 * 1024,), dtype=torch.uint8)
    assert check_copy(source, source.clone()) == ""
    changed = source.clone()
    changed[12345] ^= 1
    assert "differs" in check_copy(source, changed)
    assert "differs" in check_copy(source, source.flip(0))
