import os

import pytest

from gpudoc.facts.live.limits import LimitsSampler, read_throttle
from gpudoc.facts.model import Absent


def put(place, text):
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def test_the_tightest_quota_on_the_way_up_counts_v2(tmp_path):
    put(tmp_path / "proc/7/cgroup", "0::/a/b\n")
    put(tmp_path / "cg/a/cpu.max", "200000 100000\n")
    put(tmp_path / "cg/a/cpu.stat", "nr_periods 50\nnr_throttled 20\nthrottled_usec 1500000\n")
    put(tmp_path / "cg/a/b/cpu.max", "max 100000\n")
    found = read_throttle(7, str(tmp_path / "proc"), str(tmp_path / "cg"))
    assert (found.quota_cores, found.throttled_periods, found.periods, found.throttled_s) == (2.0, 20, 50, 1.5)


def test_quota_of_a_container_whose_path_is_the_hosts_v1(tmp_path):
    put(tmp_path / "proc/7/cgroup", "4:cpu,cpuacct:/docker/abc\n0::/\n")
    put(tmp_path / "cg/cpu/cpu.cfs_quota_us", "50000\n")
    put(tmp_path / "cg/cpu/cpu.cfs_period_us", "100000\n")
    put(tmp_path / "cg/cpu/cpu.stat", "nr_periods 5\nnr_throttled 2\nthrottled_time 1500000000\n")
    assert read_throttle(7, str(tmp_path / "proc"), str(tmp_path / "cg")).quota_cores is not None
    found = read_throttle(7, str(tmp_path / "proc"), str(tmp_path / "cg"))
    assert (found.quota_cores, found.throttled_s) == (0.5, 1.5)


def test_no_quota_is_absent_and_never_zero(tmp_path):
    put(tmp_path / "proc/7/cgroup", "0::/\n")
    put(tmp_path / "cg/cpu.max", "max 100000\n")
    found = read_throttle(7, str(tmp_path / "proc"), str(tmp_path / "cg"))
    assert isinstance(found.quota_cores, Absent)
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
    put(tmp_path / "cg/memory/x/memory.limit_in_bytes", limit)
    put(tmp_path / "cg/memory/x/memory.usage_in_bytes", "4096")
    sampler = LimitsSampler(7, str(tmp_path / "proc"), str(tmp_path / "cg"))
    assert isinstance(sampler.finish().memory_limit_bytes, int) is told
