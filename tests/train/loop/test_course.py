"""A rescue is written down where the run, its reader and the next run look."""

from __future__ import annotations

from gpudoc.errors import GpudocError
from gpudoc.profile.model import Rescue
from gpudoc.train.data.order import Order
from gpudoc.train.events import Rescued
from gpudoc.train.loop.course import Course, Rescues
from gpudoc.train.state.capture import RunProgress


class Heard(list):
    """Both the rows of metrics.jsonl and what the next run is taught."""

    add = list.append

    def remember(self, rescue, accumulation, recomputes):
        self.append((rescue, accumulation, recomputes))


def test_a_smaller_micro_batch_keeps_the_global_batch_and_the_next_run_learns_of_it():
    order = Order(num_samples=96, global_batch=12, micro_batch=6, seed=0, rank=0, world=2)
    course = Course(order=order, progress=RunProgress(micro_batch=6), end_step=8)
    course.take_micro_batch(2)
    assert (course.order.micro_batch, course.progress.micro_batch, course.order.global_batch) == (2, 2, 12)
    metrics, lesson = Heard(), Heard()
    event = Rescued(step=3, from_batch=6, to_batch=2, phase="train", shapes="float32[6]")
    assert list(Rescues(course=course, metrics=metrics, lesson=lesson).record(event)) == [event]
    assert metrics == course.progress.rescues == [event.document()]
    assert lesson == [(Rescue(step=3, from_batch=6, to_batch=2, shapes="float32[6]"), 3, False)]


def test_a_rescue_in_evaluation_teaches_the_next_run_nothing():
    course = Course(
        order=Order(num_samples=9, global_batch=3, micro_batch=3, seed=0), progress=RunProgress(), end_step=1
    )
    lesson = Heard()
    event = Rescued(step=1, from_batch=3, to_batch=1, phase="evaluate", shapes="")
    assert list(Rescues(course=course, metrics=Heard(), lesson=lesson).record(event)) == [event]
    assert course.progress.rescues
    assert not lesson


def test_a_disk_that_takes_no_profile_ends_no_training():
    class Full:
        def remember(self, rescue, accumulation, recomputes):
            raise GpudocError("profile.yaml: cannot be written: No space left on device")

    order = Order(num_samples=12, global_batch=12, micro_batch=2, seed=0)
    course = Course(order=order, progress=RunProgress(), end_step=1)
    event = Rescued(step=3, from_batch=6, to_batch=2, phase="train", shapes="")
    told = list(Rescues(course=course, metrics=Heard(), lesson=Full()).record(event))
    assert told[0] == event
    assert "could not be saved for the next run: profile.yaml: cannot be written: No space left" in told[1].text
    assert course.progress.rescues
