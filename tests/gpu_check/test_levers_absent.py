"""What a card or an environment lacks is a reason to leave a lever out of tests/gpu, and not a failure of it."""

import pytest

from gpudoc.tune.search.variants import LEVERS

levers = pytest.importorskip("tests.gpu.test_levers")


def lever(**changes):
    return next(one for one in LEVERS if changes.items() <= one.changes.items())


def test_the_optimizer_of_torchao_is_left_out_where_torchao_is_not():
    assert levers.why_not(lever(optimizer_state="8bit"), (9, 0), False) == "torchao is not installed"


def test_an_old_card_rounds_no_products_and_compiles_nothing():
    assert "too old" in levers.why_not(lever(matmul_precision="high"), (7, 5), True)
    assert "torch.compile" in levers.why_not(lever(compile_mode="whole"), (6, 1), True)
    assert levers.why_not(lever(allocator="expandable"), (6, 1), True) == ""


def test_the_type_that_is_judged_is_one_that_the_card_has():
    from tests.gpu.half import half_of

    assert (half_of((7, 5))[0], half_of((8, 0))[0]) == ("fp16", "bf16")
