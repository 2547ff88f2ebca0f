"""How long a recorded run is: across the first evaluation and the end of an epoch where the time allows."""

from types import SimpleNamespace

import pytest

from gpudoc.fix import lengths
from gpudoc.fix.lengths import length_of, why_no_core, workers_needed


def told(*seconds, status=None):
    event = SimpleNamespace(seconds=seconds)
    seen = (SimpleNamespace(trains=True, steps=(event,)),)
    return SimpleNamespace(status=status, num_steps=len(seconds), seen=seen)


def look(step_s, length=None):
    return SimpleNamespace(step_s=step_s, start_s=2.0, feeding=SimpleNamespace(length=length))


@pytest.mark.parametrize(
    ("step_s", "length", "evaluated_after", "left_s", "steps"),
    [
        # eight launches of at most 30 s
        (1.0, None, None, 400.0, 30),
        (10.0, None, None, 400.0, 12),
        # the end of an epoch is crossed where it fits, and four times at most
        (0.1, 20, None, 400.0, 100),
        (1.0, 100, None, 400.0, 30),
        # and the step behind an evaluation ends with it, where five launches of that have time
        (1.0, None, 49, 400.0, 50),
        (1.0, None, 99, 400.0, 30),
    ],
)
def test_a_recorded_run_comes_to_what_the_budget_allows(step_s, length, evaluated_after, left_s, steps):
    found = length_of(told(*[1.0] * 120), look(step_s, length), evaluated_after, left_s)
    assert found.steps == steps
    assert found.digested == max(4, steps // 3)


def test_a_script_that_ends_by_itself_soon_is_recorded_to_its_end():
    assert length_of(told(1.0, 1.0, status=0), look(1.0), None, 400.0).steps is None


@pytest.mark.parametrize(("on_gpu", "most"), [(False, 2), (True, 4)])
def test_workers_on_the_cpu_are_no_more_than_the_cores_that_the_step_computes_with(monkeypatch, on_gpu, most):
    monkeypatch.setattr(lengths, "cpus_usable", lambda: 2.0)
    waits = SimpleNamespace(training=SimpleNamespace(num_workers=0), wait_share=0.9, on_gpu=on_gpu)
    assert workers_needed(waits) == most


@pytest.mark.parametrize(("load", "is_said"), [(0.1, False), (1.0, False), (3.4, True)])
def test_cores_that_other_work_had_are_named_where_workers_gained_nothing(monkeypatch, load, is_said):
    monkeypatch.setattr(lengths, "cpus_usable", lambda: 2.0)
    assert ("3.4 on 2 cores" in why_no_core(load)) == is_said
