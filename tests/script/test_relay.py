"""Output passes through as it is, in whatever it was to go: a pipe, a file, a terminal."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

from gpudoc.script import relay as module
from gpudoc.script.relay import OutputRelay


class Sink:
    def __init__(self):
        self.streams = {1: b"", 2: b""}

    def __call__(self, number, data):
        self.streams[number] += data


def pass_through(sink, *command):
    through = OutputRelay(sink)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=through.stdout, stderr=through.stderr)
    through.started()
    while through.fileno_list():
        through.copy(select.select(through.fileno_list(), [], [])[0])
    process.wait()
    through.close()
    return through


def test_each_byte_comes_through_and_the_end_is_kept():
    sink = Sink()
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 8000); sys.stderr.write('no\\n')"
    through = pass_through(sink, sys.executable, "-c", code)
    assert sink.streams == {1: bytes(range(256)) * 8000, 2: b"no\n"}
    assert through.tail().endswith("no\n")
    assert len(through.tail()) < len(sink.streams[1])


def test_who_stops_reading_ends_the_writer_as_a_pipe_does():
    def closed(number, data):
        raise BrokenPipeError

    through = OutputRelay(closed)
    process = subprocess.Popen(["yes"], stdout=through.stdout, stderr=through.stderr)
    through.started()
    while len(through.fileno_list()) == 2:
        through.copy(through.fileno_list()[:1])
    assert process.wait() == -13
    through.close()


def test_a_terminal_stays_one_of_the_same_size_and_nothing_is_changed_on_the_way(monkeypatch):
    ours, theirs = os.openpty()
    os.set_inheritable(theirs, True)
    subprocess.run(["stty", "rows", "33", "cols", "77"], stdin=theirs, check=True)
    asked = []

    def isatty(number):
        asked.append(number)
        return number in (1, 2)

    # this process's own stdout is pytest's
    monkeypatch.setattr(module.os, "isatty", isatty)
    monkeypatch.setattr(module.os, "ttyname", lambda number: "the same")
    monkeypatch.setattr(module, "_take_size", lambda of, to: original(theirs, to))
    sink = Sink()
    code = "import os, sys; print(os.isatty(1), os.isatty(2), *os.get_terminal_size(1)); sys.stdout.write('a\\rb\\n')"
    pass_through(sink, sys.executable, "-c", code)
    assert sink.streams == {1: b"True True 77 33\na\rb\n", 2: b""}
    os.close(ours)
    os.close(theirs)


original = module._take_size


@pytest.mark.parametrize("missing", ["/dev/tty"])
def test_without_a_terminal_no_ctrl_c_reaches_the_group(missing, monkeypatch):
    def refuse(path, flags):
        assert path == missing
        raise OSError

    monkeypatch.setattr(module.os, "open", refuse)
    assert not module.on_terminal()
