import pytest

from gpudoc.tune.model import memory as memory_model
from gpudoc.tune.model.memory import MemoryLine
from gpudoc.tune.trial.messages import Point
from gpudoc.units import GIB, MIB


def points(function, batches, rest=100 * MIB):
    return [Point(batch=b, peak_bytes=int(function(b)), rest_bytes=rest) for b in batches]


def affine(batch):
    return max(180 * MIB, 120 * MIB + batch * 3 * MIB)


def walk(function, limit, cap=10**6):
    seen = []
    while (batch := memory_model.next_calibration_batch(seen, limit, cap)) is not None:
        assert function(batch) <= limit, f"calibration would run out of memory at {batch}"
        seen += points(function, [batch], rest=50 * MIB)
    return seen


@pytest.mark.parametrize("slope_kib", [1, 40, 3000, 90000])
@pytest.mark.parametrize("limit", [512 * MIB, 3 * GIB])
def test_calibration_of_convex_memory_never_exceeds_the_limit_and_comes_near_it(slope_kib, limit):
    def peak(batch):
        return max(200 * MIB, 110 * MIB + batch * slope_kib * 512, 60 * MIB + batch * slope_kib * 1024)

    seen = walk(peak, limit)
    line = memory_model.fit_memory(seen)
    truth = (limit - 60 * MIB) // (slope_kib * 1024)
    if truth > 8:
        assert line is not None
        assert line.largest(limit) >= truth * 0.99
        assert seen[-1].batch >= min(10**6, 0.6 * truth)


def test_calibration_honours_the_cap():
    assert walk(affine, 8 * GIB, cap=37)[-1].batch == 37
    assert [p.batch for p in walk(affine, 8 * GIB, cap=1)] == [1]


def test_the_line_ignores_small_batches_whose_peak_does_not_depend_on_the_batch():
    line = memory_model.fit_memory(points(affine, [1, 2, 4, 64, 128]))
    assert line.bytes_per_sample == pytest.approx(3 * MIB)
    assert line.largest(120 * MIB + 300 * 3 * MIB) == 300
    assert memory_model.fit_memory(points(lambda b: 200 * MIB, [1, 2, 4])) is None


def test_the_gap_is_what_two_mib_hold_but_at_most_one_percent_and_at_least_one():
    assert MemoryLine(batch=6000, peak_bytes=GIB, bytes_per_sample=70_000).gap(6000) == 29
    assert MemoryLine(batch=40, peak_bytes=GIB, bytes_per_sample=9 * MIB).gap(40) == 1
    assert MemoryLine(batch=300, peak_bytes=GIB, bytes_per_sample=100_000).gap(300) == 3


def test_quadratic_growth_is_seen_and_affine_growth_is_not():
    quadratic = points(lambda b: 100 * MIB + b * b * 64 * 1024, [16, 64, 128])
    assert memory_model.growth_exponent(quadratic) == pytest.approx(2.0, abs=0.15)
    assert memory_model.growth_exponent(points(affine, [64, 128, 256])) == pytest.approx(1.0, abs=0.02)
    assert memory_model.growth_exponent(points(lambda b: 100 * MIB, [64, 128, 256])) is None


def test_growth_over_steps():
    flat = [100 * MIB] * 20
    assert memory_model.growth_per_step(flat) == 0
    assert memory_model.growth_per_step([100 * MIB + (i % 3) * MIB for i in range(20)]) == 0
    assert memory_model.growth_per_step([100 * MIB + i * MIB for i in range(20)]) == pytest.approx(MIB)
    assert memory_model.growth_per_step([100 * MIB + min(i, 3) * 30 * MIB for i in range(20)]) == 0


def test_memory_is_still_when_it_never_moved_and_a_leak_that_is_named_never_is():
    flat = [100 * MIB] * 6
    assert memory_model.is_still(flat[:5], 5)
    assert not memory_model.is_still(flat[:4], 5)
    assert not memory_model.is_still([], 0)
    # one that moved at first may move again: a transformer's heap in KiB, which grows by 3 MiB at step 13
    wandering = [-9988, -4612, -768, -768, 0, -768, -768, -768, -768, -768, -768, -768, 0, 2304, -768]
    sizes = [100 * MIB + 1024 * size for size in wandering]
    assert not any(memory_model.is_still(sizes[:count], 5) for count in range(16))
    for leak in (MIB // 3 + 1, MIB, 40 * MIB):
        growing = [100 * MIB + number * leak for number in range(20)]
        assert memory_model.growth_per_step(growing)
        assert not any(memory_model.is_still(growing[:count], 5, 400 * MIB) for count in range(21))


def test_a_heap_that_wanders_is_still_where_the_peak_leaves_it_room():
    wandering = [100 * MIB + 1024 * size for size in (0, 0, -1012, 860, 0)]
    assert memory_model.is_still(wandering, 5, MIB)
    assert not memory_model.is_still(wandering, 5, MIB - 1)
    up, back = [*wandering[:4], wandering[0] + 2 * MIB], [*wandering[:3], wandering[0] + 2 * MIB, wandering[0]]
    assert [memory_model.is_still(series, 5, MIB) for series in (up, back)] == [False, True]


@pytest.mark.parametrize(
    ("peak", "rest", "roomy"), [(400, 110, True), (400, 200, False), (480, 110, False), (400, 187, True)]
)
def test_a_first_step_tells_the_room_of_the_second_which_finds_the_optimizers_state(peak, rest, roomy):
    first = Point(batch=100, peak_bytes=peak * MIB, rest_bytes=rest * MIB)
    assert memory_model.is_roomy(first, 100 * MIB, 500 * MIB) is roomy


def test_room_for_less_than_a_few_samples_is_none():
    first = Point(batch=10, peak_bytes=400 * MIB, rest_bytes=100 * MIB)
    assert not memory_model.is_roomy(first, 100 * MIB, 520 * MIB)
    assert memory_model.is_roomy(first, 100 * MIB, 521 * MIB)
