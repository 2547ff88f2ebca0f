from gpudoc.profile.model import Loader, VariantTrial
from gpudoc.tune.findings import AUTO_CEILING
from gpudoc.tune.model.memory import MemoryLine
from gpudoc.tune.search.choose import (
    choose_batch,
    explain_knee,
    explain_largest,
    explain_variant,
    is_faster,
    speedup,
)
from gpudoc.tune.search.largest import Largest
from gpudoc.tune.trial.messages import End, Point, Trial, TrialRequest, Variant

PLAIN = Variant()


def at(*pairs):
    return [Point(batch=b, step_s=(b / speed,)) for b, speed in pairs]


def largest(batch=100, cap=10**6, **changes):
    line = MemoryLine(batch=batch, peak_bytes=1000, bytes_per_sample=10.0)
    plain = {"fails_at": batch + 1, "fails_with": End.OOM_HOST}
    return Largest(batch=batch, cap=cap, limit_bytes=1005, line=line, **{**plain, **changes})


def timed(speed, variant=PLAIN, end=End.FITS):
    points = (Point(batch=8, step_s=(8 / speed,)),) if end is End.FITS else ()
    return Trial(request=TrialRequest(kind="variant", batches=(8,), variant=variant), end=end, points=points)


def test_throughput_takes_the_smallest_as_fast_that_leaves_memory():
    points = at((8, 50), (32, 90), (64, 99), (90, 100), (100, 130))
    choice = choose_batch("throughput", points, largest(), useful=1000, default=8)
    assert choice.batch == 64  # 90 is within 3 % of the fastest that leaves room, and so is 64; 100 leaves none
    assert choice.fastest == 100
    assert "99" in choice.why


def test_a_larger_batch_that_is_faster_only_within_the_noise_is_not_taken():
    points = [Point(batch=b, step_s=(0.7 * b / s, b / s, 1.3 * b / s)) for b, s in ((8, 50), (32, 90), (64, 100))]
    choice = choose_batch("throughput", points, largest(), useful=1000, default=32)
    assert choice.batch == 32
    assert "the fastest (64: 100) is faster only within the variation of its steps" in choice.why


def test_a_batch_above_the_global_batch_is_of_no_use():
    choice = choose_batch("throughput", at((8, 50), (32, 90), (64, 200)), largest(), useful=32, default=8)
    assert choice.batch == 32
    assert "global batch" in choice.why


def test_the_goal_largest_takes_it():
    choice = choose_batch("largest", at((8, 50)), largest(), useful=32, default=8)
    assert (choice.batch, choice.fastest) == (100, 8)
    assert "proved" in choice.why


def test_without_measurements_the_reference_batch():
    assert choose_batch("throughput", [], None, useful=32, default=8).batch == 8
    assert choose_batch("throughput", [], largest(batch=5), useful=32, default=8).batch == 5


def test_a_variant_must_gain_three_percent():
    assert not is_faster([timed(102)], [timed(100)])
    assert is_faster([timed(104)], [timed(100)])
    assert not is_faster([timed(900, end=End.OOM_HOST)], [timed(100)])
    assert is_faster([timed(5)], [timed(1, end=End.OOM_HOST)])


def test_a_gain_within_what_the_steps_differ_by_is_none():
    def steps(*seconds):
        return timed(1).model_copy(update={"points": (Point(batch=8, step_s=seconds),)})

    assert not is_faster([steps(0.8, 0.9, 1.1)], [steps(0.9, 1.0, 1.2)])
    assert is_faster([steps(0.6, 0.65, 0.7)], [steps(0.9, 1.0, 1.2)])
    # a second measurement that turned out otherwise
    assert not is_faster([timed(130), timed(95)], [timed(100), timed(99)])
    assert is_faster([timed(130), timed(120)], [timed(100), timed(99)])


def test_each_lever_that_was_tried_and_each_reason_is_one_sentence():
    bf16 = VariantTrial(name="bf16", changes={"precision": "bf16"}, times=1.5, kept=True, why="bf16: because")
    said = explain_variant(Variant(precision="bf16"), [bf16], {"activation_checkpointing": "recomputed: because"})
    assert said == ["bf16: because", "recomputed: because", "allocator default: nothing else was tried"]
    one = {"precision": "both: because", "allocator": "both: because"}
    assert explain_variant(PLAIN, [], one) == ["both: because"]


def test_speedup_is_of_medians_and_absent_without_both():
    chosen = Trial(
        request=TrialRequest(kind="joint", batches=(8,), feed=Loader()), end=End.FITS, points=tuple(at((8, 300)))
    )
    assert round(speedup([timed(100), timed(200)], [chosen]), 3) == 2.0
    assert speedup([timed(1, end=End.OOM_HOST)], [chosen]) is None


def test_the_largest_batch_is_explained_with_its_certificates():
    assert "101 ended with oom_host" in explain_largest(largest())
    assert "it ran, and a larger one would not help" in explain_largest(
        largest(cap=100, fails_at=None, fails_with=None)
    )
    assert "more may fit; 120 is predicted" in explain_largest(largest(complete=False, predicted=120))
    assert "batch 190" in explain_knee([Point(batch=b, step_s=(0.1 + 0.01 * b,)) for b in (8, 64, 256)])


def test_a_line_that_would_contradict_what_was_measured_is_not_said():
    beyond = [Point(batch=b, step_s=(0.1 + 0.01 * b,)) for b in (8, 64)]
    assert explain_knee(beyond) == ""
    missed = [Point(batch=b, step_s=(s,)) for b, s in ((8, 0.2), (32, 0.9), (256, 2.7))]
    assert explain_knee(missed) == ""


def test_the_cap_of_an_automatic_global_batch_is_said():
    points = [Point(batch=b, step_s=(0.1 + 0.001 * b,)) for b in (8, 32)]
    why = choose_batch("throughput", points, None, 32, 8, AUTO_CEILING).why
    assert why.endswith(
        "; a larger one would exceed what global_batch: auto allows (8 times the reference batch, a 50th of the data)"
    )
