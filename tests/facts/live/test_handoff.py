import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from gpudoc.doctor.live.gain import QUEUED
from gpudoc.facts.live import handoff
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Handoff


def test_a_real_exchange_between_two_processes_is_timed():
    found = handoff.measure()
    assert isinstance(found, Handoff)
    assert found.free_s > 0
    assert found.held_s >= 0
    assert 0 <= found.queued < 1


def test_it_says_how_long_its_processes_waited_for_a_cpu_that_another_one_had():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
            found = handoff.measure()
            busy.kill()
    finally:
        os.sched_setaffinity(0, allowed)
    assert found.queued > QUEUED


def test_an_exchange_that_takes_too_long_or_fails_is_absent(monkeypatch):
    monkeypatch.setattr(handoff, "DEADLINE_S", 0.01)
    assert isinstance(handoff.measure(), Absent)
    monkeypatch.setattr(handoff, "DEADLINE_S", 60.0)
    monkeypatch.setattr(handoff, "_CALL", "sys.exit(1)")
    assert isinstance(handoff.measure(), Absent)


def test_no_producer_outlives_a_measurement_that_was_killed_at_its_deadline():
    code = "from gpudoc.facts.live import handoff; handoff.BATCHES = 10**9; handoff.main()"
    measuring = subprocess.Popen([sys.executable, "-c", code])
    until = time.monotonic() + 60
    while not (producers := psutil.Process(measuring.pid).children()):
        assert time.monotonic() < until, "no producer was started"
        time.sleep(0.01)
    # stopped, it takes nothing more: the producer waits for room in the queue
    measuring.send_signal(signal.SIGSTOP)
    measuring.kill()
    measuring.wait()
    _, alive = psutil.wait_procs(producers, timeout=30)
    for producer in alive:
        producer.kill()
    assert not alive


def test_a_measurement_leaves_nothing_in_the_folder_for_temporary_files(monkeypatch):
    # a socket's path is short
    monkeypatch.setenv("TMPDIR", str(short := Path(tempfile.mkdtemp(dir="/tmp"))))
    try:
        assert isinstance(handoff.measure(), Handoff)
        assert list(short.iterdir()) == []
    finally:
        shutil.rmtree(short)
