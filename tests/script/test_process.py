"""What a keeper says is taken in, a signal reaches the command, and what went wrong is an error with a way out."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from gpudoc.script.process import CommandProcess, Terms
from tests.script.family import alive, marked
from tests.waiting import wait_until


def keep(*command, environment=os.environ):
    streams = (subprocess.DEVNULL,) * 3
    kept = CommandProcess(command, Terms(environment=environment, streams=streams))
    kept.wait_until_started()
    return kept


def finish(kept):
    while kept.hear():
        pass
    kept.wait()
    kept.close()


def test_a_signal_is_handed_to_the_command_alone():
    kept = keep("sleep", "600")
    assert not kept.is_over
    kept.signal(signal.SIGUSR1)
    finish(kept)
    assert kept.code == -signal.SIGUSR1
    kept.signal(signal.SIGUSR1)


def test_an_interrupt_is_handed_to_its_whole_group():
    environment = marked()
    kept = keep("sh", "-c", "sleep 600; exit 7", environment=environment)
    # a shell that is interrupted before it waits for a command goes on with that command
    wait_until(lambda: "sleep 600 " in alive(environment))
    kept.signal(signal.SIGINT, group=True)
    finish(kept)
    assert kept.code == -signal.SIGINT
    assert kept.left == ()


def test_ending_twice_is_ending_once():
    kept = keep("sleep", "600")
    assert kept.end().left == ()
    kept.close()
    kept.close()
    assert kept.end().killed == ()
    assert kept.is_over


def test_a_keeper_that_said_nothing_is_a_fault():
    kept = keep("sleep", "600")
    kept.end()
    kept.close()
    assert kept.code is None
    assert kept.refusal().exit_code == 70


def test_a_command_line_may_be_as_long_as_the_kernel_allows():
    words = ["x" * 100] * 1500
    kept = keep("sh", "-c", "exit $(($# % 100 + 7))", "sh", *words)
    finish(kept)
    assert kept.code == 7


def test_what_keeps_a_command_does_not_show_its_line_a_second_time():
    kept = keep("sleep", "600.5")
    try:
        assert "600.5" not in Path(f"/proc/{kept.keeper_pid}/cmdline").read_text()
    finally:
        kept.end()
        kept.close()
