from __future__ import annotations

import os
import platform

import pytest

from gpudoc.facts import host
from gpudoc.facts.model import Absent


def put(root, name, text):
    place = root / name
    place.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(text, bytes):
        place.write_bytes(text)
    else:
        place.write_text(text)


def test_this_machine_agrees_with_the_standard_library():
    facts = host.collect()
    assert facts.kernel == platform.release()
    assert facts.cpu_count == os.cpu_count()
    assert facts.cpus_usable <= len(os.sched_getaffinity(0))
    sizes = os.statvfs("/dev/shm")
    assert facts.shm_total_bytes == sizes.f_blocks * sizes.f_frsize
    assert isinstance(host.collect_disk().disk_free_bytes, int)


def test_the_usable_cpus_are_the_smaller_of_affinity_and_quota(tmp_path):
    put(tmp_path, "proc/self/status", "Name:\tpython\nCpus_allowed_list:\t0-3,8,10-11\n")
    assert host.cpus_usable(tmp_path) == 7.0
    put(tmp_path, "proc/self/cgroup", "0::/\n")
    put(tmp_path, "sys/fs/cgroup/cpu.max", "250000 100000\n")
    assert host.cpus_usable(tmp_path) == 2.5


def test_whole_cpus_are_one_at_the_least(monkeypatch):
    assert host.num_cpus() == max(1, int(host.cpus_usable()))
    monkeypatch.setattr(host, "cpus_usable", lambda: 0.5)
    assert host.num_cpus() == 1


def test_memory_is_in_bytes(tmp_path):
    put(tmp_path, "proc/meminfo", "MemTotal:  2048 kB\nMemAvailable:  1024 kB\nSwapTotal: 0 kB\nHugePages_Total: 3\n")
    facts = host.collect(tmp_path)
    assert (facts.memory_total_bytes, facts.memory_available_bytes, facts.swap_total_bytes) == (2 << 20, 1 << 20, 0)
    assert host.memory_available_bytes(tmp_path) == 1 << 20


def test_free_and_usable_memory_are_the_smaller_of_the_machines_and_the_cgroups(tmp_path):
    assert isinstance(host.memory_free_bytes(tmp_path), Absent)
    assert isinstance(host.memory_usable_bytes(tmp_path), Absent)
    put(tmp_path, "proc/meminfo", "MemTotal:  4096 kB\nMemAvailable:  2048 kB\n")
    assert (host.memory_free_bytes(tmp_path), host.memory_usable_bytes(tmp_path)) == (2 << 20, 4 << 20)
    put(tmp_path, "proc/self/cgroup", "0::/\n")
    put(tmp_path, "sys/fs/cgroup/memory.max", f"{3 << 20}\n")
    put(tmp_path, "sys/fs/cgroup/memory.current", f"{2 << 20}\n")
    assert (host.memory_free_bytes(tmp_path), host.memory_usable_bytes(tmp_path)) == (1 << 20, 3 << 20)


def test_what_a_tree_lacks_is_absent_never_zero(tmp_path):
    facts = host.collect(tmp_path)
    for name in ("memory_total_bytes", "cpu_governor", "numa_nodes", "transparent_hugepages", "shm_total_bytes"):
        assert isinstance(getattr(facts, name), Absent), name


@pytest.mark.parametrize(("data", "on"), [(b"\x06\0\0\0\1", True), (b"\x06\0\0\0\0", False)])
def test_secure_boot_is_the_last_byte_of_its_variable(tmp_path, data, on):
    put(tmp_path, "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", data)
    assert host.collect(tmp_path).secure_boot is on


def test_a_machine_without_uefi_has_no_secure_boot(tmp_path):
    assert host.collect(tmp_path).secure_boot is False


def test_wsl_and_jetson_are_recognised(tmp_path):
    put(tmp_path, "proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n")
    put(tmp_path, "proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
    facts = host.collect(tmp_path)
    assert facts.wsl is True
    assert facts.jetson is True


def test_cores_are_counted_once_for_their_threads(tmp_path):
    block = "processor : {}\nmodel name : AMD EPYC 9354\nphysical id : {}\ncore id : {}\nflags : avx2 fma xyz\n"
    put(tmp_path, "proc/cpuinfo", "\n".join(block.format(i, i // 4, i % 2) for i in range(8)))
    facts = host.collect(tmp_path)
    assert facts.cpu_cores_physical == 4
    assert facts.cpu_model == "AMD EPYC 9354"
    assert facts.cpu_flags == ("avx2", "fma")


def test_only_words_about_gpus_are_kept_of_the_kernels_command_line(tmp_path):
    put(
        tmp_path,
        "proc/cmdline",
        "root=UUID=1234 ro token=abc iommu=pt nvidia-drm.modeset=1 modprobe.blacklist=nouveau\n",
    )
    kept = host.collect(tmp_path).kernel_command_line
    assert kept == "iommu=pt nvidia-drm.modeset=1 modprobe.blacklist=nouveau"


def test_the_chosen_page_size_stands_in_brackets(tmp_path):
    put(tmp_path, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    put(tmp_path, "etc/os-release", 'ID=ubuntu\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n')
    facts = host.collect(tmp_path)
    assert facts.transparent_hugepages == "madvise"
    assert facts.distribution == "Ubuntu 22.04.5 LTS"


def test_the_memory_of_the_machine_is_that_of_the_collected_host():
    assert host.memory_total_bytes() == host.collect().memory_total_bytes
