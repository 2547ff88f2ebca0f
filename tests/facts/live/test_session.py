import os
import signal
import subprocess
import sys
import tempfile

import pytest

from gpudoc.facts.live.session import watch
from gpudoc.facts.model import Absent

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
