"""Every block of memory that steps allocate and free, in order, as PyTorch's own profiler saw it."""

from __future__ import annotations

import functools
from bisect import insort
from collections.abc import Callable
from contextlib import contextmanager

from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile, record_function

from gpudoc.train.data.draws import Generators
from gpudoc.train.data.order import Order
from gpudoc.train.data.reader import DirectFeed
from gpudoc.train.events import Progressed
from gpudoc.train.request import TrainRequest
from gpudoc.train.start import assemble
from gpudoc.train.start.build import build
from gpudoc.train.step.sequence import Undo
from gpudoc.train.step.step import Stepper
from gpudoc.train.stop import Stop
from gpudoc.tune.child import training
from gpudoc.tune.child.training import Trainee
from tests.train.support import forget_limit

STEPS = 3
_COUNTED, _LEFT_OUT = "test: counted", "test: left out"


@contextmanager
def _named(monkeypatch):
    """Names what is counted before the first step, and what is not because it reads data.

    Training reads its samples inside a step, with the random state that they begin with; a trial has them already.
    """
    with monkeypatch.context() as patch:
        for owner, name, label in (
            (assemble, "build_parts", _COUNTED),
            (training, "build_parts", _COUNTED),
            (Stepper, "__init__", _COUNTED),
            (Undo, "__init__", _COUNTED),
            (DirectFeed, "take", _LEFT_OUT),
            (Order, "chunks", _LEFT_OUT),
            (Generators, "snapshot", _LEFT_OUT),
        ):
            patch.setattr(owner, name, _inside(label, getattr(owner, name)))
        yield


def _inside(label: str, real: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(real)
    def named(*args, **kwargs):
        with record_function(label):
            return real(*args, **kwargs)

    return named


def of_training(config, flags, monkeypatch) -> list[int]:
    """What `gpudoc train` allocates (positive) and frees (negative), in bytes, in its first steps."""
    stop = Stop()
    request = TrainRequest(
        model=str(config),
        profile="off",
        device="cpu",
        preflight=False,
        run_dir=config.parent / "run",
        resume="never",
        flags={"log_every": 1, "steps": STEPS + 1, "num_workers": 0, **flags},
    )
    try:
        with _named(monkeypatch), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
            job, lock = _result(build(request, stop))
            with record_function(_COUNTED):
                for event in job.loop.events():
                    if isinstance(event, Progressed) and event.step == STEPS:
                        break
                # the next step begins with this
                job.stepper.free_gradients()
        lock.close()
    finally:
        forget_limit()
    return _changes(run)


def of_trial(workload, variant, batches, monkeypatch) -> list[int]:
    """The same of a trial of tune with these micro batches."""
    with _named(monkeypatch), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        trainee = Trainee(workload, variant, training.torch.device("cpu"))
        with record_function(_COUNTED):
            for _ in range(STEPS):
                trainee.train(batches)
    return _changes(run)


def _result(generator):
    while True:
        try:
            next(generator)
        except StopIteration as end:
            return end.value


def _changes(run: profile) -> list[int]:
    """Births of blocks that were counted, and their deaths; the death of any other block is of no interest."""
    events = []
    waiting = list(run.profiler.kineto_results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting += event.children
        events.append(event)
    spans = {
        label: [(e.start_time_ns, e.end_time_ns) for e in events if e.name == label] for label in (_COUNTED, _LEFT_OUT)
    }
    found, living = [], {}
    for event in sorted((e for e in events if e.tag == _EventType.Allocation), key=lambda e: e.start_time_ns):
        place, size = event.extra_fields.ptr, event.extra_fields.alloc_size
        inside = {label for label in spans if any(a <= event.start_time_ns <= b for a, b in spans[label])}
        if size < 0:
            known = living.pop(place, None)
            if known is not None:
                # autocast drops its copies of weights in the order of their addresses: of deaths in a row any order
                # leaves the same sum
                start = next((at for at in range(len(found), 0, -1) if found[at - 1] > 0), 0)
                insort(found, -known, lo=start)
        elif inside == {_COUNTED}:
            living[place] = size
            found.append(size)
        else:
            living.pop(place, None)
    return found
