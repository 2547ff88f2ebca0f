import pytest

from gpudoc.knowledge.cards import require_card
from gpudoc.plan.roofline import ExchangedBytes, StepCost, least_step_s, slowdown
from gpudoc.plan.tape import Work

A100, T4 = require_card("A100"), require_card("T4")


def test_a_large_product_is_bound_by_the_dense_rate_of_its_type():
    flops = 312 * 10**12
    assert least_step_s([Work("mm", "bfloat16", flops, 1)], A100) == pytest.approx(1)
    assert least_step_s([Work("mm", "float32", flops, 1)], A100) == pytest.approx(16)
    assert least_step_s([Work("convolution", "float32", flops, 1)], A100) == pytest.approx(2)


def test_an_elementwise_operation_is_bound_by_bandwidth():
    assert least_step_s([Work("add", "float32", 0, 1935 * 10**9)], A100) == pytest.approx(1)


def test_a_card_without_bfloat16_uses_its_fp16_rate():
    assert least_step_s([Work("mm", "bfloat16", 65 * 10**12, 1)], T4) == pytest.approx(1)


def test_a_rate_that_nobody_published_bounds_nothing():
    gb10 = require_card("GB10")
    assert least_step_s([Work("mm", "bfloat16", 10**18, 273 * 10**9)], gb10) == pytest.approx(1)
    assert least_step_s([Work("mm", "float32", 31 * 10**12, 1)], gb10) == pytest.approx(1)


# a second of products and a tenth of update on an A100, for four samples
STEP = (Work("mm", "bfloat16", 312 * 10**12, 1), Work("add", "float32", 0, 1935 * 10**8, is_update=True))
WHOLE = StepCost(works=STEP, num_samples=4)


def test_micro_batches_compute_as_often_and_update_once():
    quarter = StepCost(works=(Work("mm", "bfloat16", 78 * 10**12, 1), STEP[1]), num_samples=1)
    assert slowdown(WHOLE, quarter, A100, 4) == pytest.approx(1)
    assert slowdown(WHOLE, quarter, A100, 1) == pytest.approx((0.25 + 0.1) * 4 / 1.1)


def test_what_is_exchanged_counts_where_it_takes_longer_than_what_is_computed():
    hidden = StepCost(works=STEP, num_samples=4, exchange=ExchangedBytes(link_bytes=299 * 10**9))
    seen = StepCost(works=STEP, num_samples=4, exchange=ExchangedBytes(link_bytes=600 * 10**9))
    from_host = StepCost(works=STEP, num_samples=4, exchange=ExchangedBytes(up_bytes=int(A100.host_gb_per_s * 3e9)))
    assert slowdown(WHOLE, hidden, A100, 1) == pytest.approx(1)
    assert slowdown(WHOLE, seen, A100, 1) == pytest.approx(2.1 / 1.1)
    assert slowdown(WHOLE, from_host, A100, 1) == pytest.approx(3.1 / 1.1)


def test_without_a_card_it_is_what_is_computed_and_nothing_is_said_of_links():
    again = StepCost(works=(*STEP, Work("mm", "bfloat16", 104 * 10**12, 1)), num_samples=4)
    assert slowdown(WHOLE, again, None, 1) == pytest.approx(4 / 3)
    assert slowdown(WHOLE, StepCost(works=STEP, num_samples=4, exchange=ExchangedBytes(link_bytes=1)), None, 1) is None
