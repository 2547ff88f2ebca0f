import os

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


def test_a_look_at_a_real_process():
    glance = Glance(time_s=0.0, pid=os.getpid(), frames=HERE, active=True, holds_gil=True)
    seen = look(1.0, [os.getpid(), 2**22 + 1], [glance])
    assert seen.cpu_s > 0
    assert seen.moved_bytes > 0
    assert seen.stacks == ((os.getpid(), HERE),)
