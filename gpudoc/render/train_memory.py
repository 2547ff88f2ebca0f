"""Where a run's memory went, in words and on its page."""

from __future__ import annotations

from gpudoc.patterns import Pattern
from gpudoc.render.chart import Part, share_bar
from gpudoc.render.page import Block, Figure
from gpudoc.render.table import Table
from gpudoc.train.document import MemorySeen, RunSummary
from gpudoc.units import format_bytes

_NAMES = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "activations": "activations",
}
_MOST_MODULES = 12


def sentences(found: RunSummary) -> list[str]:
    """The memory peak of the watched step as one line; none if no step was watched."""
    memory = _memory(found)
    if memory is None:
        return []
    sizes = memory["bytes"]
    told = [f"{_name(key, found)} {format_bytes(size)}" for key, size in sizes.items() if size]
    line = f"memory in step {memory['step']}: {format_bytes(memory['peak_bytes'])} = {' + '.join(told)}"
    modules = by_module(memory)
    if modules:
        name, count, size = modules[0]
        line += f"; most activations in {_times(name, count)}, {format_bytes(size)}"
    if "fragmentation_bytes" in memory:
        line += f"; {format_bytes(memory['fragmentation_bytes'])} reserved and not in use"
    return [line]


def blocks(found: RunSummary) -> tuple[Block, ...]:
    """The same as a bar and tables; a sentence if no step was watched."""
    memory = _memory(found)
    if memory is None:
        told = (found.get("memory") or {}).get("because", "memory was not examined")
        return (f"No step was watched: {told}.",)
    sizes, peak = memory["bytes"], max(1, memory["peak_bytes"])
    rows = [(_name(key, found), format_bytes(size), f"{size / peak:.1%}") for key, size in sizes.items() if size]
    if "fragmentation_bytes" in memory:
        rows.append(("reserved and not in use", format_bytes(memory["fragmentation_bytes"]), ""))
    highest = f"The peak of step {memory['step']}: {format_bytes(peak)}."
    if memory.get("because"):
        highest += f" Activations are part of the rest: {memory['because']}."
    bar = share_bar([Part(_name(key, found), size / peak) for key, size in sizes.items() if size])
    numeric = frozenset({"bytes", "share"})
    shown: list[Block] = [
        Figure(bar, highest),
        Table(headings=("what", "bytes", "share"), rows=tuple(rows), numeric=numeric),
    ]
    modules = by_module(memory)
    if modules:
        of = sum(size for _, _, size in modules)
        cells = [(_times(name, n), format_bytes(size), f"{size / of:.1%}") for name, n, size in modules[:_MOST_MODULES]]
        headings = ("activations kept by", "bytes", "share")
        shown.append(Table(headings=headings, rows=tuple(cells), numeric=numeric))
    return tuple(shown)


def by_module(memory: MemorySeen) -> list[tuple[str, int, int]]:
    """(name, count, bytes) of the modules whose activations are alive, repeated ones together: `blocks.*.attention`."""
    kinds: dict[str, tuple[int, int]] = {}
    for row in memory.get("activations") or ():
        name = Pattern(r"(?<=\.)\d+(?=\.)").sub("*", row["module"])
        count, size = kinds.get(name, (0, 0))
        kinds[name] = (count + 1, size + row["bytes"])
    return sorted(((name, *rest) for name, rest in kinds.items()), key=lambda row: -row[2])


def _memory(found: RunSummary) -> MemorySeen | None:
    """The memory seen in the run; None if there is none, as in a run of an earlier version."""
    memory = found.get("memory")
    return memory if memory and "bytes" in memory else None


def _name(key: str, found: RunSummary) -> str:
    if key in _NAMES:
        return _NAMES[key]
    on_gpu = found.get("device", "").startswith("cuda")
    return "temporary results, workspaces and buffers" if on_gpu else "Python, libraries and temporary results"


def _times(name: str, count: int) -> str:
    return f"{name} ({count} of them)" if count > 1 else name
