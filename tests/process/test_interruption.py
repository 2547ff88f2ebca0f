"""Processes that lose their terminal, or are asked to end, while they have something left to write."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios

import pytest

WORKS = """
import pathlib, signal, sys, time
from gpudoc.process.interruption import terminating_like_ctrl_c
if sys.argv[2] == "nohup":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
before = signal.getsignal(signal.SIGHUP)
with terminating_like_ctrl_c():
    try:
        print("works", flush=True)
        while not pathlib.Path(sys.argv[1] + ".end").exists():
            time.sleep(0.01)
        pathlib.Path(sys.argv[1]).write_text("to its end")
    except KeyboardInterrupt:
        print("what is said now", flush=True)
        print("and here", file=sys.stderr, flush=True)
        pathlib.Path(sys.argv[1]).write_text("the best so far")
assert signal.getsignal(signal.SIGHUP) == before
"""


def command(place, how):
    return [sys.executable, "-c", WORKS, str(place), how]


def test_what_was_found_is_written_when_the_terminal_is_gone(tmp_path):
    ours, theirs = pty.openpty()

    def own_terminal():
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        command(tmp_path / "found", ""), stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=own_terminal
    )
    os.close(theirs)
    seen = b""
    while b"works" not in seen:
        seen += os.read(ours, 4096)
    os.close(ours)
    assert process.wait() == 0
    assert (tmp_path / "found").read_text() == "the best so far"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_is_heard_once_and_what_is_said_goes_where_it_did(tmp_path, number):
    with subprocess.Popen(command(tmp_path / "found", ""), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "works\n"
        process.send_signal(number)
        assert process.communicate()[0] == "what is said now\n"
    assert (tmp_path / "found").read_text() == "the best so far"


def test_under_nohup_a_hangup_is_nobodys(tmp_path):
    with subprocess.Popen(command(tmp_path / "found", "nohup"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "works\n"
        process.send_signal(signal.SIGHUP)
        (tmp_path / "found.end").touch()
        process.communicate()
    assert (tmp_path / "found").read_text() == "to its end"
