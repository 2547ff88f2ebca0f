"""Quota, throttling, limit and kills, for cgroup v1, v2 and both, whatever part of the path exists here."""

from __future__ import annotations

import pytest

from gpudoc.process import cgroup

GIB = 1 << 30


def put(root, name, text):
    place = root / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def test_the_tightest_quota_on_the_way_up_counts_with_its_throttling_v2(tmp_path):
    put(tmp_path, "proc/7/cgroup", "0::/a/b\n")
    put(tmp_path, "sys/fs/cgroup/cpu.max", "800000 100000\n")
    put(tmp_path, "sys/fs/cgroup/a/cpu.max", "200000 100000\n")
    put(tmp_path, "sys/fs/cgroup/a/cpu.stat", "nr_periods 50\nnr_throttled 20\nthrottled_usec 1500000\n")
    put(tmp_path, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
    assert cgroup.cpu_quota(7, tmp_path) == cgroup.CpuQuota(2.0, 1.5, 20, 50)


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu"])
def test_a_quota_of_v1_where_the_path_is_the_hosts(tmp_path, mount):
    put(tmp_path, "proc/7/cgroup", "4:cpu,cpuacct:/docker/abc\n0::/\n")
    put(tmp_path, f"sys/fs/cgroup/{mount}/cpu.cfs_quota_us", "50000\n")
    put(tmp_path, f"sys/fs/cgroup/{mount}/cpu.cfs_period_us", "100000\n")
    put(tmp_path, f"sys/fs/cgroup/{mount}/cpu.stat", "nr_periods 5\nnr_throttled 2\nthrottled_time 1500000000\n")
    assert cgroup.cpu_quota(7, tmp_path) == cgroup.CpuQuota(0.5, 1.5, 2, 5)


@pytest.mark.parametrize(("name", "text"), [("cpu.max", "max 100000\n"), ("cpu.cfs_quota_us", "-1\n")])
def test_no_quota_is_none_and_never_zero(tmp_path, name, text):
    put(tmp_path, "proc/7/cgroup", "0::/\n")
    put(tmp_path, f"sys/fs/cgroup/{name}", text)
    put(tmp_path, "sys/fs/cgroup/cpu.cfs_period_us", "100000\n")
    assert cgroup.cpu_quota(7, tmp_path) is None
    assert cgroup.cpu_quota(8, tmp_path) is None


def test_every_group_with_a_limit_is_told_with_what_it_holds_besides_file_cache(tmp_path):
    put(tmp_path, "proc/self/cgroup", "0::/job/step\n")
    put(tmp_path, "sys/fs/cgroup/job/memory.max", f"{8 * GIB}\n")
    put(tmp_path, "sys/fs/cgroup/job/memory.current", f"{3 * GIB}\n")
    put(tmp_path, "sys/fs/cgroup/job/memory.stat", f"anon 1\ninactive_file {GIB}\n")
    put(tmp_path, "sys/fs/cgroup/job/step/memory.max", f"{9 * GIB}\n")
    assert cgroup.memory_limits(root=tmp_path) == [
        cgroup.MemoryLimit(9 * GIB, None),
        cgroup.MemoryLimit(8 * GIB, 2 * GIB),
    ]
    assert cgroup.tightest_memory(root=tmp_path) == cgroup.MemoryLimit(8 * GIB, 2 * GIB)


def test_version_1_counts_the_cache_of_its_descendants(tmp_path):
    put(tmp_path, "proc/self/cgroup", "4:memory:/pod\n")
    put(tmp_path, "sys/fs/cgroup/memory/pod/memory.limit_in_bytes", f"{2 * GIB}\n")
    put(tmp_path, "sys/fs/cgroup/memory/pod/memory.usage_in_bytes", f"{GIB}\n")
    put(tmp_path, "sys/fs/cgroup/memory/pod/memory.stat", f"inactive_file 5\ntotal_inactive_file {GIB // 2}\n")
    assert cgroup.tightest_memory(root=tmp_path) == cgroup.MemoryLimit(2 * GIB, GIB // 2)


@pytest.mark.parametrize("text", ["max\n", "9223372036854771712\n", "0\n"])
def test_a_memory_limit_near_two_to_the_63_is_none(tmp_path, text):
    put(tmp_path, "proc/self/cgroup", "0::/\n")
    put(tmp_path, "sys/fs/cgroup/memory.max", text)
    assert cgroup.memory_limits(root=tmp_path) == []
    assert cgroup.tightest_memory(root=tmp_path) is None


def test_a_hybrid_machine_has_version_2_beside_version_1(tmp_path):
    put(tmp_path, "proc/self/cgroup", "4:memory:/x\n0::/x\n")
    put(tmp_path, "sys/fs/cgroup/unified/x/cpu.max", "100000 100000\n")
    put(tmp_path, "sys/fs/cgroup/memory/x/memory.limit_in_bytes", f"{GIB}\n")
    assert cgroup.hierarchies(root=tmp_path) == [(("memory",), "/x"), ((), "/x")]
    quota = cgroup.cpu_quota(root=tmp_path)
    assert quota is not None
    assert quota.cores == 1.0
    assert cgroup.tightest_memory(root=tmp_path) == cgroup.MemoryLimit(GIB, None)


@pytest.mark.parametrize("name", ["memory.events", "memory.oom_control"])
def test_kills_for_want_of_memory_are_counted_up_to_the_root(tmp_path, name):
    put(tmp_path, "proc/self/cgroup", "4:memory:/job\n")
    assert cgroup.oom_kills(root=tmp_path) == 0
    put(tmp_path, f"sys/fs/cgroup/memory/job/{name}", "low 0\noom 3\noom_kill 2\n")
    put(tmp_path, f"sys/fs/cgroup/memory/{name}", "oom_kill 5\n")
    assert cgroup.oom_kills(root=tmp_path) == 7
