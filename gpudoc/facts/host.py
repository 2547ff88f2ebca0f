"""The computer around the GPU: system, CPU, memory, limits, disk."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from gpudoc.facts.caches import last_level_cache_bytes
from gpudoc.facts.container import ROOT, cpu_quota_cores, memory_headroom_bytes, memory_limit_bytes
from gpudoc.facts.files import exists, list_names, read_bytes, read_text, reason_of
from gpudoc.facts.model import Absent, Fact, Host
from gpudoc.facts.numa import nodes_of_process

_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_GPU_OPTIONS = (
    "iommu", "intel_iommu", "amd_iommu", "pci", "pcie_aspm", "pcie_acs_override", "nokaslr", "modprobe.blacklist",
    "rd.driver.blacklist", "module_blacklist", "nomodeset", "hugepages", "isolcpus",
)  # fmt: skip
_CPU_FLAGS = (
    "avx",
    "avx2",
    "avx512f",
    "avx512vl",
    "avx512_bf16",
    "amx_bf16",
    "f16c",
    "fma",
    "hypervisor",
    "bf16",
    "asimd",
    "sve",
)


def collect(root: Path = ROOT) -> Host:
    """All of `Host` except the free disk space: `collect_disk` reads that, because a dead mount may make it hang."""
    release = read_text(root, "proc/sys/kernel/osrelease")
    memory = _meminfo(root)
    cpus = _cpuinfo(root)
    return Host(
        system=platform.system(),
        kernel=platform.release() if isinstance(release, Absent) else release,
        kernel_command_line=_gpu_options(read_text(root, "proc/cmdline")),
        distribution=_distribution(root),
        architecture=platform.machine(),
        libc_version=_libc(),
        wsl=is_wsl(root),
        jetson=_is_jetson(root),
        secure_boot=_secure_boot(root),
        cpu_model=_cpu_model(cpus),
        cpu_flags=_cpu_flags(cpus),
        cpu_count=_cpu_count(root),
        cpu_cores_physical=_cores(cpus),
        cpus_usable=cpus_usable(root),
        cpu_governor=read_text(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        last_level_cache_bytes=last_level_cache_bytes(root),
        numa_nodes=_numa_nodes(root),
        numa_nodes_usable=nodes_of_process(root),
        memory_total_bytes=memory.get("MemTotal", Absent("not in /proc/meminfo")),
        memory_available_bytes=memory.get("MemAvailable", Absent("not in /proc/meminfo")),
        swap_total_bytes=memory.get("SwapTotal", Absent("not in /proc/meminfo")),
        transparent_hugepages=_chosen(read_text(root, "sys/kernel/mm/transparent_hugepage/enabled")),
        shm_total_bytes=_space(root / "dev/shm", "total"),
        shm_free_bytes=shm_free_bytes(root),
        open_files_limit=_limit("RLIMIT_NOFILE"),
        locked_memory_limit_bytes=_limit("RLIMIT_MEMLOCK"),
        processes_limit=_limit("RLIMIT_NPROC"),
    )


def collect_disk() -> Host:
    """Free bytes in the current folder and in the folder for temporary files (`df . $TMPDIR`)."""
    return Host(
        disk_free_bytes=_space(Path.cwd(), "free"),
        tmp_free_bytes=_space(Path(tempfile.gettempdir()), "free"),
    )


def is_wsl(root: Path = ROOT) -> bool:
    """Whether this is Windows' subsystem for Linux, with Windows' GPU driver (`uname -r`)."""
    release = read_text(root, "proc/sys/kernel/osrelease")
    return not isinstance(release, Absent) and "microsoft" in release.lower()


def cpus_usable(root: Path = ROOT) -> float:
    """CPUs that this process may keep busy: the smaller of its affinity (`nproc`) and its cgroup's quota."""
    allowed = _allowed_cpus(root)
    quota = cpu_quota_cores(root)
    return float(allowed) if isinstance(quota, Absent) else min(float(allowed), quota)


def num_cpus() -> int:
    """Whole CPUs that this process may keep busy, at least one."""
    return max(1, int(cpus_usable()))


def memory_available_bytes(root: Path = ROOT) -> Fact[int]:
    """Bytes that can be used without swapping (`free -b`, column available)."""
    return _meminfo(root).get("MemAvailable", Absent("not in /proc/meminfo"))


def memory_total_bytes(root: Path = ROOT) -> Fact[int]:
    """Memory of the machine (`grep MemTotal /proc/meminfo`); a container's limit is not in it."""
    return _meminfo(root).get("MemTotal", Absent("not in /proc/meminfo"))


def memory_free_bytes(root: Path = ROOT) -> Fact[int]:
    """Bytes that a new process may take: the available memory, limited by the room in every cgroup around it."""
    return _least(memory_available_bytes(root), memory_headroom_bytes(root))


def memory_usable_bytes(root: Path = ROOT) -> Fact[int]:
    """Bytes that a process could ever take: the machine's memory, limited by the cgroup."""
    return _least(memory_total_bytes(root), memory_limit_bytes(root))


def shm_free_bytes(root: Path = ROOT) -> Fact[int]:
    """Free bytes of /dev/shm, through which loader workers hand over batches (`df -B1 /dev/shm`)."""
    return _space(root / "dev/shm", "free")


def _least(*facts: Fact[int]) -> Fact[int]:
    """The smallest known fact; the first one, which is absent, if none is known."""
    return min((fact for fact in facts if not isinstance(fact, Absent)), default=facts[0])


def _gpu_options(line: Fact[str]) -> Fact[str]:
    """Only the words of the kernel's command line that concern GPUs, PCIe and CPUs; the rest is private."""
    if isinstance(line, Absent):
        return line
    words = [w for w in line.split() if w.split("=", 1)[0] in _GPU_OPTIONS or w.startswith(("nvidia", "nouveau"))]
    return " ".join(words)


def _allowed_cpus(root: Path) -> int:
    status = read_text(root, "proc/self/status")
    lines = [] if isinstance(status, Absent) else status.splitlines()
    spans = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("Cpus_allowed_list:")), "")
    count = _count_list(spans)
    return count or os.cpu_count() or 1


def _count_list(spans: str) -> int:
    """How many numbers a kernel list like '0-3,8' names."""
    count = 0
    for span in filter(None, spans.split(",")):
        first, _, last = span.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            count += int(last or first) - int(first) + 1
    return count


def _cpu_count(root: Path) -> Fact[int]:
    online = read_text(root, "sys/devices/system/cpu/online")
    count = 0 if isinstance(online, Absent) else _count_list(online)
    return count or os.cpu_count() or Absent("the system does not say")


def _meminfo(root: Path) -> dict[str, Fact[int]]:
    text = read_text(root, "proc/meminfo")
    rows: dict[str, Fact[int]] = {}
    for line in ("" if isinstance(text, Absent) else text).splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdecimal():
            rows[name] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    return rows


def _cpuinfo(root: Path) -> Fact[list[dict[str, str]]]:
    text = read_text(root, "proc/cpuinfo")
    if isinstance(text, Absent):
        return text
    blocks = [block for block in text.split("\n\n") if ":" in block]
    return [
        {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in block.splitlines())}
        for block in blocks
    ]


def _cpu_model(cpus: Fact[list[dict[str, str]]]) -> Fact[str]:
    if isinstance(cpus, Absent):
        return platform.processor() or cpus
    return next((cpu["model name"] for cpu in cpus if "model name" in cpu), Absent("not in /proc/cpuinfo"))


def _cpu_flags(cpus: Fact[list[dict[str, str]]]) -> Fact[tuple[str, ...]]:
    if isinstance(cpus, Absent) or not cpus:
        return Absent("not in /proc/cpuinfo")
    flags = set((cpus[0].get("flags") or cpus[0].get("Features") or "").split())
    return tuple(flag for flag in _CPU_FLAGS if flag in flags)


def _cores(cpus: Fact[list[dict[str, str]]]) -> Fact[int]:
    if isinstance(cpus, Absent):
        return cpus
    places = {(cpu["physical id"], cpu["core id"]) for cpu in cpus if "core id" in cpu and "physical id" in cpu}
    return len(places) or Absent("not in /proc/cpuinfo")


def _numa_nodes(root: Path) -> Fact[int]:
    names = list_names(root, "sys/devices/system/node")
    if isinstance(names, Absent):
        return names
    return sum(name.startswith("node") and name[4:].isdecimal() for name in names) or Absent(
        "the kernel does not name one"
    )


def _distribution(root: Path) -> Fact[str]:
    text = read_text(root, "etc/os-release")
    if isinstance(text, Absent):
        return text
    rows = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    name = rows.get("PRETTY_NAME") or rows.get("ID")
    return name.strip().strip('"') if name else Absent("not in /etc/os-release")


def _libc() -> Fact[str]:
    version = None
    if sys.platform != "win32":
        with contextlib.suppress(ValueError, OSError):
            version = os.confstr("CS_GNU_LIBC_VERSION")
    return version or Absent("not a GNU C library")


def _is_jetson(root: Path) -> bool:
    model = read_text(root, "proc/device-tree/model")
    named = not isinstance(model, Absent) and ("jetson" in model.lower() or "orin" in model.lower())
    return named or exists(root, "etc/nv_tegra_release")


def _secure_boot(root: Path) -> Fact[bool]:
    data = read_bytes(root, _SECURE_BOOT)
    if isinstance(data, Absent):
        return False if not exists(root, "sys/firmware/efi") else data
    return len(data) == 5 and data[4] == 1


def _chosen(text: Fact[str]) -> Fact[str]:
    if isinstance(text, Absent) or "[" not in text:
        return text
    return text.split("[", 1)[1].split("]", 1)[0]


def _space(place: Path, which: str) -> Fact[int]:
    try:
        sizes = shutil.disk_usage(place)
    except OSError as error:
        return Absent(reason_of(error, str(place)))
    return sizes.total if which == "total" else sizes.free


def _limit(name: str) -> Fact[int]:
    if sys.platform == "win32":
        return Absent("this system has no resource limits")
    else:
        import resource

        soft, _ = resource.getrlimit(getattr(resource, name))
        return sys.maxsize if soft == resource.RLIM_INFINITY else soft
