import pytest
import torch

from gpudoc.bench.cases.checks import check_copy, check_product, spread


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


@pytest.mark.parametrize("length", [8, 4096, 2**25, 2**27 + 3, 2**40])
def test_the_places_that_are_compared_reach_the_last_word_and_no_further(length):
    places = spread(length, 4096)
    assert (int(places[0]), int(places[-1])) == (0, length - 1)
    assert bool((places.diff() >= 0).all())


def test_a_copy_of_a_quarter_gibibyte_is_compared_to_its_end():
    source = torch.zeros(2**28, dtype=torch.uint8)
    assert check_copy(source, source) == ""
    other = source.clone()
    words = other.view(torch.int64)
    # the sum of all words stays the same: only the words in place can tell
    words[0], words[-1] = 1, -1
    assert "differs" in check_copy(source, other)
