from gpudoc.tune.findings import Findings
from gpudoc.tune.trial.messages import End, Point, Request, Trial, Variant


def timed(kind, seconds):
    points = (Point(batch=8, step_s=(seconds,)),)
    return Trial(request=Request(kind=kind, batches=(8,)), end=End.FITS, points=points)


def test_before_anything_is_measured_there_is_no_speedup_and_the_plain_variant():
    found = Findings()
    assert found.speedup is None
    assert found.variant == Variant()


def test_the_speedup_is_that_of_the_comparison_or_one_when_the_default_stands():
    found = Findings(defaults=[timed("default", 0.4)], joints=[timed("joint", 0.1)])
    assert found.speedup == 4.0
    found.kept_default = True
    assert found.speedup == 1.0
