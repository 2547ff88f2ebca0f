import pytest

from gpudoc.tune.findings import Findings, most_of_use
from gpudoc.tune.trial.messages import End, Point, Trial, TrialRequest, Variant
from gpudoc.workload.config import Train


def timed(kind, seconds):
    points = (Point(batch=8, step_s=(seconds,)),)
    return Trial(request=TrialRequest(kind=kind, batches=(8,)), end=End.FITS, points=points)


def test_before_anything_is_measured_there_is_no_speedup_and_the_plain_variant():
    found = Findings()
    assert found.speedup is None
    assert found.variant == Variant()


def test_the_speedup_is_that_of_the_comparison_or_one_when_the_default_stands():
    found = Findings(defaults=[timed("default", 0.4)], joints=[timed("joint", 0.1)])
    assert found.speedup == 4.0
    found.kept_default = True
    assert found.speedup == 1.0


@pytest.mark.parametrize(
    ("goal", "num_samples", "global_batch", "most"),
    [
        ("throughput", 4000, "auto", 400),
        ("throughput", 1000, "auto", 256),
        ("throughput", 5, "auto", 5),
        ("largest", 4000, "auto", 4000),
        ("throughput", 4000, 1024, 1024),
    ],
)
def test_for_speed_no_batch_is_tried_that_leaves_fewer_than_ten_steps_an_epoch(goal, num_samples, global_batch, most):
    train = Train(reference_batch=32, global_batch=global_batch)
    assert most_of_use(train, num_samples, goal) == most
