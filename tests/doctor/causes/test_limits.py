from dataclasses import replace

import pytest

from gpudoc.doctor.causes import limits
from gpudoc.doctor.model import Skip
from gpudoc.facts.model import Absent, KernelEvent
from tests.doctor.causes.judge import finds
from tests.machines.built import GIB, ask, changed, found, machine


@pytest.mark.parametrize(
    ("path", "small", "cause"),
    [
        ("host.shm_total_bytes", 64 << 20, "shm_too_small"),
        ("host.open_files_limit", 256, "too_many_open_files"),
        ("host.processes_limit", 100, "process_limit_low"),
        ("host.memory_available_bytes", GIB // 2, "host_memory_low"),
        ("host.disk_free_bytes", GIB // 2, "disk_full"),
        ("host.tmp_free_bytes", 0, "disk_full"),
    ],
)
def test_each_limit_has_its_cause(path, small, cause):
    (find,) = (finder.find for finder in limits.FINDERS if finder.id == cause)
    assert found(find, machine()) == []
    assert found(find, changed(machine(), path, small)) == [(cause, "warning")]


def quota(threads):
    return changed(changed(machine(), "container.cpu_quota_cores", 4.0), "torch.num_threads", threads)


def used(memory):
    return changed(changed(machine(), "container.memory_limit_bytes", 8 * GIB), "container.memory_used_bytes", memory)


KILLED = (KernelEvent(kind="oom_kill", text="Out of memory: Killed process 4242 (python)"),)

test_a_quota_a_cgroups_memory_and_a_kill = finds([
    # a quota matters when torch does not know it
    (limits.find_cpu_quota, quota(32), "cgroup_cpu_limit warning"),
    (limits.find_cpu_quota, quota(4), ""),
    (limits.find_cpu_quota, replace(quota(32), environment={"OMP_NUM_THREADS": "4"}), ""),
    # the cgroup's memory counts beside the machine's
    (limits.find_little_memory, used(4 * GIB), ""),
    (limits.find_little_memory, used(8 * GIB - 1), "host_memory_low warning"),
    (limits.find_killed, replace(machine(), kernel_log=KILLED), "host_oom_killed info"),
    (limits.find_killed, machine(), ""),
])  # fmt: skip


def test_a_quota_cannot_be_judged_without_torchs_threads():
    unknown = quota(Absent("not asked (--quick)"))
    assert ask(limits.find_cpu_quota, unknown) == [Skip("torch.num_threads: not asked (--quick)")]


def test_files_that_hang_are_named():
    facts = replace(machine(), probe_failures={"files": "no answer within 8 s: nodes", "nvml": "no answer within 8 s"})
    (finding,) = ask(limits.find_hung_files, facts)
    assert [o.value for o in finding.evidence] == ["no answer within 8 s: nodes"]
