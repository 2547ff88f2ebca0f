"""The CPU's last-level cache, from the kernel's own description of it."""

from __future__ import annotations

from pathlib import Path

from gpudoc.facts.files import list_names, read_text
from gpudoc.facts.model import Absent, Fact
from gpudoc.patterns import Pattern

_CPUS = "sys/devices/system/cpu"
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def last_level_cache_bytes(root: Path) -> Fact[int]:
    """Bytes of the last-level cache over all its instances (`lscpu --caches=NAME,ALL-SIZE`)."""
    names = list_names(root, _CPUS)
    if isinstance(names, Absent):
        return names
    # (level, the CPUs that share the instance) -> bytes
    instances: dict[tuple[int, str], int] = {}
    for cpu in (name for name in names if Pattern(r"cpu\d+").fullmatch(name)):
        indexes = list_names(root, f"{_CPUS}/{cpu}/cache")
        for index in () if isinstance(indexes, Absent) else indexes:
            instance = _instance(root, f"{_CPUS}/{cpu}/cache/{index}")
            if instance is not None:
                instances[instance[0], instance[1]] = instance[2]
    if not instances:
        return Absent("the kernel describes no caches")
    last = max(level for level, _ in instances)
    return sum(size for (level, _), size in instances.items() if level == last)


def _instance(root: Path, folder: str) -> tuple[int, str, int] | None:
    level, shared, size = (read_text(root, f"{folder}/{name}") for name in ("level", "shared_cpu_list", "size"))
    if isinstance(level, Absent) or isinstance(shared, Absent) or isinstance(size, Absent):
        return None
    parts = Pattern(r"(\d+)([KMG]?)").fullmatch(size)
    if parts is None or not level.isdecimal():
        return None
    return int(level), shared, int(parts[1]) * _UNITS[parts[2]]
