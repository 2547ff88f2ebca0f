import os

import pytest

from gpudoc.facts.live.stillness import BUSY_S, STILL_S, Look, Stillness, look
from gpudoc.facts.process import Frame, Glance

HERE = (Frame("hold", "/home/me/train.py", 50),)
NEXT_LINE = (Frame("hold", "/home/me/train.py", 51),)
THERE = (Frame("load", "/home/me/train.py", 80),)
IMPORT = (Frame("_call_with_frames_removed", "<frozen importlib._bootstrap>", 241),)


def feed(stillness, *looks):
    return [stillness.takes(Look(t, ((1, stack),) if stack else (), cpu, moved)) for t, stack, cpu, moved in looks]


def test_one_place_without_cpu_and_bytes_is_still_after_a_while():
    assert feed(Stillness(), (0, HERE, 5, 0), (STILL_S - 1, HERE, 5, 0), (STILL_S, HERE, 5.1, 1000)) == [
        False,
        False,
        True,
    ]


def test_every_move_begins_anew():
    looks = ((0, HERE, 5, 0), (9, THERE, 5, 0), (18, HERE, 5, 0), (27, HERE, 5, 0), (28, HERE, 5, 0))
    assert feed(Stillness(), *looks) == [False, False, False, False, True]


def test_what_computes_or_moves_bytes_in_one_place_gets_longer():
    for cpu, moved in ((1.0, 0), (0.0, 1 << 20)):
        looks = [(t, HERE, t * cpu, t * moved) for t in (0, STILL_S, 2 * STILL_S, BUSY_S)]
        assert feed(Stillness(), *looks) == [False, False, False, True]


def test_a_loop_over_a_few_lines_is_one_place():
    looks = [(t, stack, t, 0) for t, stack in ((0, HERE), (10, NEXT_LINE), (20, HERE), (BUSY_S, NEXT_LINE))]
    assert feed(Stillness(), *looks) == [False, False, False, True]


def test_imports_and_jobs_without_a_stack_are_never_still():
    for stack in (IMPORT, ()):
        assert feed(Stillness(), *((t, stack, 0, 0) for t in (0, 20, 40, 100))) == [False] * 4


def test_without_stacks_only_what_uses_nothing_stands_still():
    stillness = Stillness(still_s=30.0, with_stacks=False)
    # an hour of training and then nothing: the hour is not averaged in
    looks = [(t, (), float(t), 0) for t in range(0, 3600, 5)]
    looks += [(t, (), 3595.0, 0) for t in range(3600, 3640, 5)]
    assert [t for (t, *_), takes in zip(looks, feed(stillness, *looks), strict=True) if takes] == [3625, 3630, 3635]


@pytest.mark.parametrize(("cpu", "seconds", "tells"), [(0.0, 3.0, False), (0.0, 4.0, True), (1.0, 9.0, False)])
def test_a_standstill_tells_something_after_a_while_and_later_when_it_computes(cpu, seconds, tells):
    stillness = Stillness()
    feed(stillness, (0, HERE, 0.0, 0), (1, HERE, cpu, 0), (seconds, HERE, cpu * seconds, 0))
    assert stillness.seen.is_telling is tells


def test_a_standstill_is_a_watch_of_what_was_seen():
    stillness = Stillness()
    feed(stillness, (5, THERE, 1.0, 0), (6, HERE, 2.0, 100), (9, HERE, 2.0, 200), (12, HERE, 2.0, 300))
    seen = stillness.seen.as_watch(2**22 + 1)
    assert (seen.seconds, seen.interrupted, seen.ended) == (6.0, True, False)
    (thread,) = seen.stacks.threads
    assert [seen.stacks.frames[i] for sample in thread.samples for i in sample] == list(HERE) * 3
    (track,) = seen.processes
    assert track.cpu == ((0.0, 0.0), (3.0, 0.0), (6.0, 0.0))
    assert track.moved == ((0.0, 100), (3.0, 200), (6.0, 300))


def test_a_look_at_a_real_process():
    glance = Glance(time_s=0.0, pid=os.getpid(), frames=HERE, active=True, holds_gil=True)
    seen = look(1.0, [os.getpid(), 2**22 + 1], [glance])
    assert seen.cpu_s > 0
    assert seen.moved_bytes > 0
    assert seen.stacks == ((os.getpid(), HERE),)
