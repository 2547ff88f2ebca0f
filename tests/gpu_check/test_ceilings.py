"""Rows of bench as the ceilings step judges them."""

from benchmarks.gpu_check.checks.ceilings import compare


def row(name="matmul", value=800.0, ceiling=1000.0, doubts=(), **parameters):
    return {
        "name": name, "parameters": parameters, "value": value, "unit": "TFLOP/s", "ceiling": ceiling,
        "ceiling_from": "a formula", "doubts": list(doubts),
    }  # fmt: skip


def test_the_best_row_of_each_kind_is_compared():
    found = compare([row(value=300.0, dtype="bf16"), row(value=800.0, dtype="bf16"), row(value=90.0, dtype="fp32")])
    ratios = {one.name: (one.ratio, one.is_right) for one in found.comparisons}
    assert ratios == {"matmul bf16": (0.8, True), "matmul fp32": (0.09, False)}


def test_what_bench_refuses_and_what_slows_the_clocks_fails():
    doubts = [
        {"id": "impossible", "text": "refused: 1200 TFLOP/s"},
        {"id": "throttled", "text": "throttled (heat) 90%"},
    ]
    found = compare([row(value=None, doubts=doubts, dtype="bf16")])
    assert found.failures == [
        "bench doubts matmul bf16: refused: 1200 TFLOP/s",
        "bench doubts matmul bf16: throttled (heat) 90%",
    ]


def test_a_card_without_a_ceiling_is_recorded_and_not_judged():
    (one,) = compare([row(ceiling=None, dtype="fp16")]).comparisons
    assert one.is_right
    assert "gpudoc has no figure for it" in one.sentence()
