import os

import pytest

from gpudoc.facts.live.limits import LimitsSampler
from gpudoc.facts.model import Absent


def put(place, text):
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def test_throttling_is_what_came_since_the_watch_began(tmp_path):
    put(tmp_path / "proc/7/cgroup", "0::/a\n")
    put(tmp_path / "sys/fs/cgroup/a/cpu.max", "200000 100000\n")
    put(tmp_path / "sys/fs/cgroup/a/cpu.stat", "nr_periods 50\nnr_throttled 20\nthrottled_usec 1500000\n")
    sampler = LimitsSampler(7, tmp_path)
    put(tmp_path / "sys/fs/cgroup/a/cpu.stat", "nr_periods 60\nnr_throttled 24\nthrottled_usec 2500000\n")
    found = sampler.finish()
    assert (found.cpu_quota_cores, found.throttled_s, found.throttled_periods, found.periods) == (2.0, 1.0, 4, 10)


def test_of_a_job_that_has_ended_the_quota_is_known_and_the_throttling_is_not(tmp_path):
    put(tmp_path / "proc/7/cgroup", "0::/a\n")
    put(tmp_path / "sys/fs/cgroup/a/cpu.max", "200000 100000\n")
    sampler = LimitsSampler(7, tmp_path)
    (tmp_path / "proc/7/cgroup").unlink()
    found = sampler.finish()
    assert found.cpu_quota_cores == 2.0
    assert isinstance(found.throttled_s, Absent)
    assert isinstance(found.periods, Absent)


def test_no_quota_is_absent_and_never_zero(tmp_path):
    put(tmp_path / "proc/7/cgroup", "0::/\n")
    put(tmp_path / "sys/fs/cgroup/cpu.max", "max 100000\n")
    found = LimitsSampler(7, tmp_path).finish()
    assert isinstance(found.cpu_quota_cores, Absent)
    assert isinstance(found.throttled_s, Absent)


def test_the_limits_of_this_process():
    limits = LimitsSampler(os.getpid()).finish()
    assert limits.cpus_affinity == len(os.sched_getaffinity(0))
    assert isinstance(limits.memory_available_bytes, int)
    assert isinstance(limits.machine_busy_cores, float)
    assert limits.cpus_usable <= limits.cpus_affinity


@pytest.mark.parametrize(("limit", "told"), [("9223372036854771712", False), ("1048576", True)])
def test_a_memory_limit_near_two_to_the_63_is_none(tmp_path, limit, told):
    put(tmp_path / "proc/7/cgroup", "3:memory:/x\n")
    put(tmp_path / "sys/fs/cgroup/memory/x/memory.limit_in_bytes", limit)
    put(tmp_path / "sys/fs/cgroup/memory/x/memory.usage_in_bytes", "4096")
    found = LimitsSampler(7, tmp_path).finish()
    assert isinstance(found.memory_limit_bytes, int) is told
    assert isinstance(found.memory_used_bytes, int) is told
