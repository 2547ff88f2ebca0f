"""Differences between nodes: versions, firmware, the number of GPUs, clocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gpudoc.facts.model import Absent, Fact
from gpudoc.fleet.record import FleetNode, FleetRecord

# one job must share these; otherwise its ranks compute differently or do not start together
ESSENTIAL = frozenset({"driver", "cuda", "cublas", "cudnn", "nccl", "torch", "python", "gpudoc", "container", "GPU"})
# beyond this difference, time-outs and the order of log lines of two nodes are misleading
CLOCK_APART_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that differs between nodes: the nodes of each value, the usual value, and nodes without one.

    `usual` is None if no value has more than half of the nodes with a value.
    """

    what: str
    values: dict[str, tuple[int, ...]]
    usual: str | None
    untold: tuple[int, ...]

    @property
    def odd(self) -> tuple[int, ...]:
        """The nodes whose value is not the usual one."""
        return tuple(n for value, nodes in self.values.items() if value != self.usual for n in nodes)

    @property
    def is_essential(self) -> bool:
        """Whether one job needs the same value on all nodes."""
        return self.what in ESSENTIAL


def differences(record: FleetRecord) -> tuple[Difference, ...]:
    """The differences between the nodes that answered, essential ones first."""
    nodes = [(number, node) for number, node in enumerate(record.nodes) if node.missing is None or node.versions]
    names = dict.fromkeys(name for _, node in nodes for name in node.versions)
    found = [_compare(name, ((n, node.versions.get(name, Absent("not known"))) for n, node in nodes)) for name in names]
    found.append(_compare("GPU", ((n, _models(node)) for n, node in nodes)))
    found.append(_compare("VBIOS", ((n, _vbios(node)) for n, node in nodes)))
    kept = [one for one in found if len(one.values) > 1 or (one.values and one.untold)]
    return tuple(sorted(kept, key=lambda one: (len(one.values) < 2, not one.is_essential, one.what)))


def _compare(what: str, facts: Iterable[tuple[int, Fact[str]]]) -> Difference:
    values: dict[str, list[int]] = {}
    untold = []
    for number, fact in facts:
        if isinstance(fact, Absent):
            untold.append(number)
        else:
            values.setdefault(fact, []).append(number)
    told = sum(len(nodes) for nodes in values.values())
    ordered = sorted(values.items(), key=lambda item: -len(item[1]))
    usual = ordered[0][0] if ordered and len(ordered[0][1]) * 2 > told else None
    return Difference(
        what=what, values={value: tuple(nodes) for value, nodes in ordered}, usual=usual, untold=tuple(untold)
    )


def _models(node: FleetNode) -> Fact[str]:
    counts = Counter("unknown model" if isinstance(gpu.model, Absent) else gpu.model for gpu in node.gpus)
    return ", ".join(f"{count} x {model}" for model, count in sorted(counts.items())) or Absent("no GPU was listed")


def _vbios(node: FleetNode) -> Fact[str]:
    found = sorted({gpu.vbios for gpu in node.gpus if not isinstance(gpu.vbios, Absent)})
    return ", ".join(found) if found else Absent("not known")


def clocks_apart(record: FleetRecord) -> list[tuple[int, float]]:
    """The nodes whose clock differs from rank 0's by more than CLOCK_APART_S plus the measurement's own error."""
    found = []
    for number, node in enumerate(record.nodes):
        offset, error = node.clock_offset_s, node.clock_error_s
        if isinstance(offset, Absent):
            continue
        if abs(offset) > CLOCK_APART_S + (0.0 if isinstance(error, Absent) else error):
            found.append((number, offset))
    return found
