"""A step that was queued before it began shows how long the GPU works on it; here on a GPU that is a number."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from gpudoc.train.meter.head_start import HeadStart

CYCLES_PER_S = 1e9


class Gpu:
    """Its clock in milliseconds: it moves by work, by pauses, and where it waits for the host."""

    def __init__(self):
        self.now = 0.0

    def pause(self, cycles):
        self.now += cycles / CYCLES_PER_S * 1e3

    def event(self, **_):
        return Event(self)

    def stretch(self, ms):
        first, last = Event(self), Event(self)
        first.record()
        self.now += ms
        last.record()
        return first, last


class Event:
    def __init__(self, gpu):
        self.gpu, self.at = gpu, None

    def record(self, stream=None):
        self.at = self.gpu.now

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return other.at - self.at


@pytest.fixture
def gpu(monkeypatch):
    made = Gpu()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "stream")
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", made.event)
    monkeypatch.setattr(torch.cuda, "_sleep", made.pause)
    return made


def run(gpu, steps, *, late_ms, queueing_s=0.02, busy_ms=10.0):
    """So many steps, late by `late_ms` unless a pause came before; (head start, stretches, steps with a pause)."""
    found, stretches, paused = HeadStart(torch.device("cuda")), [], []
    for number in range(steps):
        before = gpu.now
        found.advance(number, queueing_s)
        if gpu.now > before:
            paused.append((number, gpu.now - before))
        stretches.append(gpu.stretch(busy_ms + (0.0 if gpu.now > before else late_ms)))
    return found, stretches, paused


def test_what_other_steps_take_beyond_the_one_that_was_queued_first_is_idle_time(gpu):
    found, stretches, _ = run(gpu, 10, late_ms=30.0)
    assert found.idle_s(0.370, 10) is None, "nothing is known before it was read"
    assert found.read(stretches, ()) == (3, pytest.approx(0.03))
    assert found.idle_s(0.370, 10) == pytest.approx(0.270)
    assert found.idle_s(0.090, 10) == 0.0


def test_copies_and_exchanges_that_the_step_waited_for_are_not_its_work(gpu):
    found, stretches, _ = run(gpu, 4, late_ms=0.0, busy_ms=10.0)
    first = stretches[3][0]
    inside, outside, later = ((gpu.event(), gpu.event()) for _ in range(3))
    inside[0].at, inside[1].at = first.at + 2, first.at + 8
    outside[0].at, outside[1].at = first.at - 5, first.at - 1
    # the next step's, which begins in the moment in which this one ends
    later[0].at, later[1].at = first.at + 10, first.at + 16
    found.read(stretches, [inside, outside, later])
    assert found.idle_s(0.010, 1) == pytest.approx(0.006)


def test_pauses_come_ever_rarer_and_outlast_the_queueing_of_the_step_before(gpu):
    found, paused = HeadStart(torch.device("cuda")), []
    for step in range(1, 1100):
        before = gpu.now
        found.advance(0, 0.02)
        if gpu.now > before:
            paused.append(step)
            assert gpu.now - before == pytest.approx(1.5 * 20)
        found.read([gpu.stretch(1.0)], ())
    assert paused == [4, 64, 1024]


def test_a_step_that_never_ended_tells_nothing(gpu):
    found, stretches, _ = run(gpu, 4, late_ms=5.0)
    assert found.read(stretches[:3], ()) == (-1, 0.0)
    assert found.idle_s(1.0, 1) is None


def test_after_a_change_a_step_is_seen_anew(gpu):
    found, stretches, _ = run(gpu, 4, late_ms=5.0)
    found.read(stretches, ())
    found.again()
    assert found.idle_s(1.0, 1) is None
    before = gpu.now
    found.advance(0, 0.02)
    assert gpu.now == before
    found.advance(1, 0.02)
    found.read([gpu.stretch(1.0), gpu.stretch(40.0)], ())
    assert found.idle_s(0.1, 2) == pytest.approx(0.02)
