import subprocess
import sys
import time
from collections import namedtuple

import psutil

from gpudoc.process import cpu_load
from gpudoc.process.cgroup import CpuQuota
from gpudoc.process.cpu_load import LoadMeter, cpus_allowed


def own_cpus(found):
    return found.share * cpus_allowed() - found.other_cpus


SPIN = "import time\nend = time.process_time() + {s}\nwhile time.process_time() < end: pass"


def test_what_others_do_is_theirs():
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        # a child of ours counts as ours, so the burner is measured from a process that is not above it
        code = (
            "import time\nfrom gpudoc.process.cpu_load import LoadMeter\nmeter = LoadMeter()\ntime.sleep(0.6)\n"
            "found = meter.read()\nprint(found.other_cpus, found.share)"
        )
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    finally:
        burner.kill()
        burner.wait()
    others, share = map(float, told.split())
    assert others > 0.4
    assert 0.9 * others <= share * cpus_allowed() < others + 0.2


def test_what_a_grandchild_did_is_ours_while_it_lives_and_once_it_was_waited_for():
    grandchild = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    meter = LoadMeter()
    began = time.perf_counter()
    # the middle process lives on: what it waited for is in its times, not in ours
    stays = f"{grandchild}; print('ended', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", stays, SPIN.format(s=0.5)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as middle:
        assert middle.stdout.readline() == "ended\n"
        lives, span = meter.read(), time.perf_counter() - began
        middle.stdin.close()
    ended, whole = meter.read(), time.perf_counter() - began
    assert own_cpus(lives) * span >= 0.45
    assert own_cpus(ended) * whole >= 0.45


def test_a_short_span_says_nothing():
    assert LoadMeter().read() is None


def test_what_a_hypervisor_took_is_a_share():
    meter = LoadMeter()
    time.sleep(0.06)
    assert 0 <= meter.read().stolen_share <= 1


def test_only_the_cpus_that_it_may_use_count(monkeypatch):
    Row = namedtuple("Row", "user system idle iowait steal guest")
    read = [[Row(0, 0, 0, 0, 0, 0)] * 4, [Row(90, 0, 0, 0, 0, 0)] * 2 + [Row(2, 0, 6, 0, 2, 0), Row(0, 0, 10, 0, 0, 0)]]
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: read.pop(0))
    monkeypatch.setattr(cpu_load.os, "sched_getaffinity", lambda _pid: {2, 3})
    monkeypatch.setattr(cpu_load.time, "perf_counter", iter([0.0, 10.0]).__next__)
    monkeypatch.setattr(LoadMeter, "_own", lambda _self: 0.0)
    found = LoadMeter().read()
    assert (found.other_cpus, found.other_share, found.share) == (0.2, 0.1, 0.1)
    # of the time that was wanted on them, not of all that there was
    assert found.stolen_share == 0.5


def test_how_often_a_quota_was_used_up_is_counted_and_unknown_without_one(monkeypatch):
    quotas = [CpuQuota(2.0, 1.0, 10, 100), CpuQuota(2.0, 3.0, 15, 120), None, None]
    monkeypatch.setattr(cpu_load, "cpu_quota", lambda: quotas.pop(0))
    for told in (0.25, None):
        meter = LoadMeter()
        time.sleep(0.06)
        assert meter.read().throttled_share == told
