"""cgroup v1, v2 and both, containers by their marks, schedulers by their variables."""

from __future__ import annotations

import pytest

from gpudoc.facts import container
from gpudoc.facts.model import Absent

GIB = 1 << 30


def put(root, name, text):
    place = root / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def v2(root, path="/job"):
    put(root, "proc/self/cgroup", f"0::{path}\n")
    (root / "sys/fs/cgroup/job").mkdir(parents=True)


def test_version_2_takes_the_tightest_limit_on_the_way_up(tmp_path):
    v2(tmp_path, "/job/step")
    put(tmp_path, "sys/fs/cgroup/job/cpu.max", "400000 100000\n")
    put(tmp_path, "sys/fs/cgroup/job/step/cpu.max", "max 100000\n")
    put(tmp_path, "sys/fs/cgroup/job/memory.max", f"{8 * GIB}\n")
    put(tmp_path, "sys/fs/cgroup/job/memory.current", f"{3 * GIB}\n")
    put(tmp_path, "sys/fs/cgroup/job/memory.stat", f"anon 1\ninactive_file {GIB}\n")
    put(tmp_path, "sys/fs/cgroup/job/step/memory.max", "max\n")
    assert container.cpu_quota_cores(tmp_path) == 4.0
    assert container.memory_limit_bytes(tmp_path) == 8 * GIB
    assert container.memory_headroom_bytes(tmp_path) == 6 * GIB
    facts = container.collect(tmp_path, {})
    assert (facts.cgroup_version, facts.memory_used_bytes) == (2, 2 * GIB)


def test_version_1_with_quota_and_limit(tmp_path):
    put(tmp_path, "proc/self/cgroup", "4:memory:/pod\n1:cpu,cpuacct:/pod\n0::/\n")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us", "150000\n")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us", "100000\n")
    put(tmp_path, "sys/fs/cgroup/memory/pod/memory.limit_in_bytes", f"{2 * GIB}\n")
    put(tmp_path, "sys/fs/cgroup/memory/pod/memory.usage_in_bytes", f"{GIB}\n")
    put(tmp_path, "sys/fs/cgroup/memory/pod/memory.stat", f"total_inactive_file {GIB // 2}\n")
    assert container.cpu_quota_cores(tmp_path) == 1.5
    assert container.memory_headroom_bytes(tmp_path) == 2 * GIB - GIB // 2
    assert container.collect(tmp_path, {}).cgroup_version == 1


def test_inside_a_container_only_the_mounts_root_exists(tmp_path):
    put(tmp_path, "proc/self/cgroup", "0::/../../kubepods.slice/pod1\n")
    put(tmp_path, "sys/fs/cgroup/memory.max", f"{4 * GIB}\n")
    put(tmp_path, "sys/fs/cgroup/memory.current", "0\n")
    assert container.memory_limit_bytes(tmp_path) == 4 * GIB


@pytest.mark.parametrize("text", ["max\n", "9223372036854771712\n"])
def test_no_limit_is_absent_not_a_number(tmp_path, text):
    v2(tmp_path)
    put(tmp_path, "sys/fs/cgroup/job/memory.max", text)
    assert container.memory_limit_bytes(tmp_path) == Absent("no memory limit in the cgroup")
    assert container.memory_headroom_bytes(tmp_path) == Absent("no memory limit in the cgroup")
    assert container.cpu_quota_cores(tmp_path) == Absent("no CPU quota in the cgroup")


@pytest.mark.parametrize(
    ("mark", "kind"),
    [
        (".dockerenv", "docker"),
        ("run/.containerenv", "podman"),
        (".singularity.d/runscript", "apptainer"),
        ("var/run/secrets/kubernetes.io/token", "kubernetes"),
    ],
)
def test_containers_are_known_by_their_marks(tmp_path, mark, kind):
    put(tmp_path, mark, "")
    assert container.collect(tmp_path, {}).kind == kind


def test_no_mark_and_a_plain_cgroup_is_no_container(tmp_path):
    put(tmp_path, "proc/1/cgroup", "0::/init.scope\n")
    assert container.collect(tmp_path, {}).kind == "none"


def test_a_scheduler_and_its_gpus(tmp_path):
    facts = container.collect(tmp_path, {"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "4"})
    assert (facts.scheduler, facts.gpus_asked) == ("slurm", "4")
    assert isinstance(container.collect(tmp_path, {}).gpus_asked, Absent)


def test_this_machine_answers_without_an_error():
    assert isinstance(container.collect().kind, str)
