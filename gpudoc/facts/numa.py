"""Which CPUs are near which memory."""

from __future__ import annotations

from pathlib import Path

from gpudoc.facts.container import ROOT
from gpudoc.facts.files import list_names, read_text
from gpudoc.facts.model import Absent, Fact
from gpudoc.patterns import Pattern


def cpus_of_node(node: int, root: Path = ROOT) -> Fact[tuple[int, ...]]:
    """The CPUs of NUMA node `node` (`numactl --hardware`); absent if the kernel has no such node."""
    text = read_text(root, f"sys/devices/system/node/node{node}/cpulist")
    return text if isinstance(text, Absent) else _cpus(text)


def nodes_of_process(root: Path = ROOT) -> Fact[tuple[int, ...]]:
    """The NUMA nodes on whose CPUs this process may run (`numactl --show`); absent if the kernel lists none."""
    names = list_names(root, "sys/devices/system/node")
    status = read_text(root, "proc/self/status")
    if isinstance(names, Absent) or isinstance(status, Absent):
        return names if isinstance(names, Absent) else Absent("/proc/self/status cannot be read")
    spans = next((line.split(":", 1)[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list:")), "")
    allowed = _cpus(spans.strip())
    if isinstance(allowed, Absent):
        return allowed
    nodes = sorted(int(name[4:]) for name in names if name.startswith("node") and name[4:].isdecimal())
    cpus = {node: cpus_of_node(node, root) for node in nodes}
    return tuple(node for node, has in cpus.items() if not isinstance(has, Absent) and set(has) & set(allowed))


def _cpus(text: str) -> Fact[tuple[int, ...]]:
    cpus: list[int] = []
    for part in filter(None, text.split(",")):
        match = Pattern(r"(\d+)(?:-(\d+))?").fullmatch(part.strip())
        if match is None:
            return Absent(f"not a list of CPUs: {text}")
        cpus += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(cpus)
