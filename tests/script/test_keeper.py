"""The keeper itself: what it tells, who is below it, and that only its own signal ends what it keeps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from gpudoc.script import keeper
from tests.script.family import alive, marked
from tests.waiting import wait_until

CALL = "from gpudoc.script.keeper import main; import sys; main(sys.argv[1:])"


class Keeper:
    def __init__(self, *command, environment=os.environ, patience_s=0.0):
        self.told, theirs = os.pipe()
        to_read, to_write = os.pipe()
        order = {"told": theirs, "parent": os.getpid(), "command": command, "cell": None, "memory_limit_bytes": None}
        self.process = subprocess.Popen(
            [sys.executable, "-c", CALL, str(to_read)],
            pass_fds=(theirs, to_read), env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        os.close(to_read)
        with os.fdopen(to_write, "w") as file:
            json.dump({**order, "patience_s": patience_s}, file)
        self.lines = os.fdopen(self.told)

    def hear(self):
        return json.loads(self.lines.readline())

    def finish(self):
        told = [json.loads(line) for line in self.lines]
        self.lines.close()
        assert self.process.wait() == 0
        return told


def test_it_tells_the_pid_the_end_and_who_had_to_be_killed(tmp_path):
    deaf = f"trap '' TERM; touch {tmp_path}/deaf; while :; do sleep 0.1; done"
    keeper = Keeper("sh", "-c", f'setsid sh -c "{deaf}" & while [ ! -e {tmp_path}/deaf ]; do sleep 0.01; done; exit 5')
    pid = keeper.hear()["pid"]
    assert pid != keeper.process.pid
    code, left = keeper.finish()
    assert code["code"] == 5
    # between its sleeps the shell may just have forked another of its name
    assert {name.split()[0] for name in left["left"]} - {"sleep"} == {"sh"}


def test_who_ends_when_asked_is_not_killed(tmp_path):
    polite = f"trap 'echo tidy > {tmp_path}/tidied; exit' TERM; touch {tmp_path}/ready; while :; do sleep 0.01; done"
    keeper = Keeper(
        "sh", "-c", f'sh -c "{polite}" & while [ ! -e {tmp_path}/ready ]; do sleep 0.01; done', patience_s=60
    )
    *_, left = keeper.finish()
    assert left == {"left": [], "stuck": []}
    assert (tmp_path / "tidied").exists()


def test_the_signals_of_a_scheduler_are_the_commands_to_answer():
    environment = marked()
    keeper = Keeper("sleep", "600", environment=environment)
    assert "pid" in keeper.hear()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        keeper.process.send_signal(number)
    wait_until(lambda: len(alive(environment)) == 2)
    keeper.process.send_signal(signal.SIGRTMIN)
    assert keeper.finish() == []
    assert alive(environment) == []


def test_who_survives_a_kill_is_named_and_not_waited_for(monkeypatch):
    """A process that waits in the kernel for a dead file system: there is none to be had here, so it is played."""
    sent = []
    monkeypatch.setattr(keeper, "KILLED_S", 0.1)
    monkeypatch.setattr(keeper, "_descendants", lambda: {7: "cp"})
    monkeypatch.setattr(keeper.os, "kill", lambda pid, number: sent.append((pid, number)))
    assert keeper._end_descendants(0.0) == ([], ["cp (pid 7)"])
    assert (7, signal.SIGKILL) in sent
