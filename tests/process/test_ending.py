"""Ending a process and its family leaves nothing behind, says whom it had to kill, and touches nobody else."""

import signal
import subprocess
import sys

import pytest

from gpudoc.process import ending
from gpudoc.process.ending import Ended, end_family, end_process, how_it_ended, signal_group
from gpudoc.process.lifetime import is_running

SLEEP = "import time; time.sleep(600)"
OBEDIENT = "import sys, time, signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); "
STUBBORN = "import time, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
STARTED = "print('here', flush=True); time.sleep(600)"


def start(code, **options):
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, **options)


def started(code, **options):
    process = start(code, **options)
    assert process.stdout.readline() == "here\n"
    return process


@pytest.fixture
def family():
    """A process that has started one child with these options, and the child's pid."""
    pids = []

    def make(options, then=SLEEP, **own):
        code = f"import subprocess, sys, os\nchild = subprocess.Popen([sys.executable, '-c', {SLEEP!r}], {options})\n"
        process = start(f"{code}print(child.pid, flush=True)\n{then}", **own)
        pids.append(int(process.stdout.readline()))
        return process, pids[-1]

    yield make
    for pid in pids:
        if is_running(pid):
            subprocess.run(["kill", "-9", str(pid)], check=False)


def test_a_process_that_does_as_it_is_asked_is_not_killed():
    process = started(OBEDIENT + STARTED)
    assert end_process(process, ask=signal.SIGTERM, grace_s=60) is False
    assert process.returncode == 3
    process.stdout.close()


def test_a_process_that_does_not_listen_is_killed_when_its_grace_is_over():
    process = started(STUBBORN + STARTED)
    assert end_process(process, ask=signal.SIGTERM, grace_s=0.05) is True
    assert process.returncode == -signal.SIGKILL
    process.stdout.close()


def test_ending_one_process_leaves_its_children_alone(family):
    process, child = family("stdout=subprocess.DEVNULL")
    assert end_process(process) is True
    assert is_running(child)
    process.stdout.close()


@pytest.mark.parametrize("options", ["", "start_new_session=True", "preexec_fn=lambda: os.setpgid(0, 0)"])
@pytest.mark.parametrize("own", [{}, {"start_new_session": True}], ids=["ours", "own session"])
def test_a_family_is_dead_when_the_call_returns_and_each_is_named(family, options, own):
    process, child = family(f"stdout=subprocess.DEVNULL, {options}", **own)
    found = end_family(process, patience_s=60)
    assert process.returncode == -signal.SIGKILL
    assert not is_running(child)
    assert len(found.killed) == 2
    assert found.killed[0].endswith(f"(pid {process.pid})")
    assert found.killed[1].endswith(f"(pid {child})")
    assert found.left == ()
    process.stdout.close()


@pytest.mark.parametrize("options", ["", "preexec_fn=lambda: os.setpgid(0, 0)"])
def test_who_was_left_by_a_process_that_has_ended_is_found_by_its_session(family, options):
    process, child = family(f"stdout=subprocess.DEVNULL, {options}", then="", start_new_session=True)
    assert process.wait(60) == 0
    found = end_family(process, patience_s=60)
    assert found.killed[0].endswith(f"(pid {child})")
    assert len(found.killed) == 1
    assert not is_running(child)
    process.stdout.close()


def test_a_family_that_ends_by_itself_when_asked_needs_no_kill():
    process = started(OBEDIENT + STARTED, start_new_session=True)
    assert end_family(process, ask=signal.SIGTERM, grace_s=60) == Ended()
    assert process.returncode == 3
    process.stdout.close()


def test_what_survives_is_said_and_not_waited_for(monkeypatch):
    process = started("import time; " + STARTED)
    with monkeypatch.context() as patch:
        patch.setattr(ending, "_kill", lambda member, killed: killed.setdefault(member.pid, "held by the driver"))
        found = end_family(process, patience_s=0.05)
    assert found == Ended(("held by the driver",), ("held by the driver",))
    assert end_family(process, patience_s=60).left == ()
    process.stdout.close()


def test_a_group_gets_a_signal_and_one_that_is_gone_none():
    process = started("import time; " + STARTED, start_new_session=True)
    signal_group(process.pid, signal.SIGUSR1)
    assert process.wait(60) == -signal.SIGUSR1
    signal_group(process.pid)
    process.stdout.close()


def test_an_end_in_words():
    assert how_it_ended(-11) == "ended by SIGSEGV"
    assert how_it_ended(-40) == "ended by signal 40"
    assert how_it_ended(3) == "ended with code 3"
    assert how_it_ended(None) == "closed its pipe"
