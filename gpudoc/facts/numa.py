"""Which CPUs stand near which memory."""

from __future__ import annotations

import re
from pathlib import Path

from gpudoc.facts.container import ROOT
from gpudoc.facts.files import read_text
from gpudoc.facts.model import Absent, Fact


def cpus_of_node(node: int, root: Path = ROOT) -> Fact[tuple[int, ...]]:
    """The CPUs of NUMA node `node` (`numactl --hardware`); absent when the kernel knows no such node."""
    text = read_text(root, f"sys/devices/system/node/node{node}/cpulist")
    if isinstance(text, Absent):
        return text
    cpus: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            return Absent(f"not a list of CPUs: {text}")
        cpus += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(cpus)
