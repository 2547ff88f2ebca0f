"""Which signals are handed on: those of a person or a scheduler, once each; the command gets a terminal's itself."""

from __future__ import annotations

import functools
import os
import signal
import traceback

import pytest

from gpudoc.script import signals as module
from gpudoc.script.signals import Signals


class Kept:
    def __init__(self, own_session=True):
        self.terms = type("Terms", (), {"own_session": own_session})
        self.signals = []
        self.ended = 0
        self.pid = 4711

    def signal(self, number, *, group):
        self.signals.append((number, group))

    def end(self):
        self.ended += 1


def in_a_fork(test):
    """The test in a process with one thread: here a worker of pytest has others, which the kernel may choose."""

    @functools.wraps(test)
    def run(*arguments, **named):
        child = os.fork()
        if child == 0:
            try:
                test(*arguments, **named)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    return run


@pytest.fixture
def said():
    return []


@in_a_fork
def test_a_signal_is_handed_on_once_and_an_interrupt_to_the_group(said):
    kept = Kept()
    with Signals(said.append) as signals:
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            os.kill(os.getpid(), number)
        signals.hand_on(kept)
        os.kill(os.getpid(), signal.SIGTERM)
        signals.hand_on(kept)
    assert sorted(kept.signals) == [(2, True), (10, False), (15, False)]
    assert signals.handed_on == {2, 10, 15}
    assert len(said) == 1


@in_a_fork
def test_a_signal_that_comes_before_the_command_is_known_waits_for_it(said):
    kept = Kept()
    kept.pid = None
    with Signals(said.append) as signals:
        os.kill(os.getpid(), signal.SIGHUP)
        signals.hand_on(kept)
        assert (kept.signals, signals.handed_on) == ([], set())
        kept.pid = 4711
        signals.hand_on(kept)
    assert kept.signals == [(1, False)]


@in_a_fork
def test_a_second_interrupt_ends_everything(said, monkeypatch):
    monkeypatch.setattr(module, "_ONE_WISH_S", 0.0)
    kept = Kept()
    with Signals(said.append) as signals:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            signals.hand_on(kept)
        assert kept.ended == 1
    assert said[-1] == "ended at once"
    assert signals.interrupts == 2


@in_a_fork
def test_what_the_terminal_sent_to_both_is_not_sent_again(said, monkeypatch):
    monkeypatch.setattr(module, "_BY_THE_KERNEL", 0)
    kept = Kept(own_session=False)
    with Signals(said.append) as signals:
        os.kill(os.getpid(), signal.SIGINT)
        signals.hand_on(kept)
    assert kept.signals == []
    assert signals.interrupts == 1


@in_a_fork
def test_what_came_too_late_is_gone_afterwards(said):
    with Signals(said.append):
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
