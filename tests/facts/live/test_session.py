import os
import signal
import subprocess
import sys
import tempfile

import pytest

from gpudoc.facts.live import spy
from gpudoc.facts.live.session import Looking, watch
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Stacks

BUSY = "def spins():\n    while True:\n        sum(range(1000))\nprint(flush=True)\nspins()\n"


@pytest.fixture
def busy(tmp_path):
    script = tmp_path / "busy.py"
    script.write_text(BUSY)
    with subprocess.Popen([sys.executable, script], cwd=tmp_path, stdout=subprocess.PIPE) as job:
        job.stdout.readline()
        yield job
        job.kill()


def test_a_watch_holds_stacks_processes_limits_and_who_holds_the_lock(busy, tmp_path):
    seen = watch(pid=busy.pid, seconds=3)
    assert not isinstance(seen.stacks, Absent), seen.stacks
    main = next(t for t in seen.stacks.threads if t.is_main)
    assert seen.stacks.frames[main.samples[0][-1]].function == "spins"
    assert seen.stacks.lines[(str(tmp_path / "busy.py"), 3)] == "sum(range(1000))"
    assert seen.processes[0].pid == busy.pid
    assert seen.processes[0].cpu_s > 0
    assert not isinstance(seen.glances, Absent)
    assert any(g.holds_gil for g in seen.glances)
    assert seen.directory == str(tmp_path)
    assert not seen.ended
    assert not seen.interrupted
    assert busy.poll() is None


class OnceSampled:
    """Acts once py-spy samples the job and some looks were taken since."""

    def __init__(self, folder, act):
        self.folder, self.act, self.looks = folder, act, 0

    def say(self, text):
        pass

    def advance(self, done, total, text):
        told = [path.read_text() for path in self.folder.glob("gpudoc-watch*/stacks.err")]
        self.looks += any("Sampling process" in text for text in told)
        if self.looks == 10:
            self.act()


def test_when_the_job_ends_the_watch_ends_with_what_was_seen(busy, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # nobody waits for an hour
    seen = watch(pid=busy.pid, seconds=3600, progress=OnceSampled(tmp_path, busy.kill))
    assert seen.ended
    assert not isinstance(seen.stacks, Absent), seen.stacks


def test_ctrl_c_ends_the_looking_and_keeps_what_was_seen(busy, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    press = OnceSampled(tmp_path, lambda: os.kill(os.getpid(), signal.SIGINT))
    seen = watch(pid=busy.pid, seconds=3600, progress=press)
    assert seen.interrupted
    assert not isinstance(seen.stacks, Absent), seen.stacks
    assert busy.poll() is None


class Recorded:
    """A sampler that is done at once, with what it is said to have seen."""

    is_done = True

    def __init__(self, *_, seen=None):
        self.seen = Stacks(rate_hz=20.0, start_s=0.0, frames=(), threads=()) if seen is None else seen

    def finish(self):
        return self.seen


def shown(busy, folder, names):
    """The looking at a job whose short looks show these causes one after the other, and what was shown until it ended.

    It ends with its job, once nothing more is shown.
    """
    told = []

    def clear(seen):
        told.append(names[len(told)])
        if len(told) == len(names):
            busy.kill()
            busy.wait()
        return told[-1]

    looking = Looking(busy.pid, folder, 3600, recorder=Recorded(), clear=clear)
    while looking.goes_on():
        looking.look()
    return looking.finish(), told


def test_a_watch_ends_once_two_short_looks_in_a_row_show_the_same(busy, tmp_path, monkeypatch):
    monkeypatch.setattr(spy, "Recorder", Recorded)
    names = ["a", "", "", "b", "a", "a", "not asked"]
    seen, told = shown(busy, tmp_path, names)
    assert told == names[:-1]
    assert not seen.ended
    assert busy.poll() is None


def test_a_watch_goes_on_while_short_looks_differ_or_show_nothing(busy, tmp_path, monkeypatch):
    monkeypatch.setattr(spy, "Recorder", Recorded)
    names = ["a", "b", "a", "", "", ""]
    seen, told = shown(busy, tmp_path, names)
    assert (told, seen.ended) == (names, True)


def test_where_only_an_ancestor_may_look_the_watch_takes_its_time(busy, tmp_path, monkeypatch):
    refused = Absent("ptrace refused")
    monkeypatch.setattr(spy, "Recorder", lambda *_: Recorded(seen=refused))
    looking = Looking(busy.pid, tmp_path, 3600, recorder=Recorded(), clear=lambda seen: pytest.fail("nothing was seen"))
    for _ in range(4):
        looking.look()
    assert looking.goes_on()
    looking.finish()
