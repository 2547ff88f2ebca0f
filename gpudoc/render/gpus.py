"""The GPUs of a machine and their processes, as tables for the screen, Markdown and the page; a dash is an unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

from gpudoc.facts.model import NOT_READ, Absent, Fact, Gpu, GpuProcess, Link, Machine, T
from gpudoc.render.table import Table
from gpudoc.units import GIB, format_seconds

DASH = "–"
_HEADINGS = ("GPU", "name", "GiB used", "°C", "W of", "SM MHz of", "PCIe of", "ECC", "procs")
_HOLDERS = ("GPU", "pid", "user", "for", "GiB", "program", "runs in", "yours")
_WIDEST_NAME = 60
_LEAST_COLUMNS = 3


def gpu_table(machine: Machine) -> Table | None:
    """A row for each GPU; None if nothing but names is known."""
    gpus = machine.shown_gpus
    rows = tuple(_row(gpu) for gpu in gpus)
    if not any(cell != DASH for gpu, row in zip(gpus, rows, strict=True) for cell in _measured(gpu, row)):
        return None
    return Table(headings=_HEADINGS, rows=rows, numeric=frozenset(_HEADINGS) - {"name"})


def holder_table(machine: Machine, most: int = 100) -> Table | None:
    """A row for each of the first `most` processes that hold a GPU; None if none is listed."""
    from gpudoc.doctor.causes.holders import holders_of

    held = [(gpu, process) for gpu in machine.shown_gpus for process in holders_of(gpu)]
    if not held:
        return None
    rows = tuple(_holder(gpu, process) for gpu, process in held[:most])
    if len(held) > most:
        rows = (*rows, (DASH, DASH, DASH, DASH, DASH, f"{len(held) - most} more", DASH, DASH))
    return Table(headings=_HOLDERS, rows=rows, numeric=frozenset(("GPU", "pid", "GiB")))


def text_table(table: Table, width: int) -> list[str]:
    """The table as aligned lines of at most `width`: shortens the widest column of words, then drops last columns."""
    columns = [list(column) for column in zip(table.headings, *table.rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    words = [n for n, heading in enumerate(table.headings) if heading not in table.numeric]
    over = sum(widths) + 2 * (len(widths) - 1) - width
    if over > 0 and words:
        widest = max(words, key=lambda n: widths[n])
        widths[widest] = max(8, widths[widest] - over)
    while sum(widths) + 2 * (len(widths) - 1) > width and len(widths) > _LEAST_COLUMNS:
        widths.pop()
    lines = []
    for whole in (table.headings, *table.rows):
        row = whole[: len(widths)]
        cells = [cell if len(cell) <= size else cell[: size - 1] + "…" for cell, size in zip(row, widths, strict=True)]
        numeric = [heading in table.numeric for heading in table.headings[: len(widths)]]
        aligned = [
            cell.rjust(size) if right else cell.ljust(size)
            for cell, size, right in zip(cells, widths, numeric, strict=True)
        ]
        lines.append("  ".join(aligned).rstrip())
    return lines


def gpu_facts(machine: Machine) -> list[str]:
    """Every known fact of the GPUs except their processes: one line if all GPUs agree, else one for each."""
    gpus = machine.shown_gpus
    told: dict[str, dict[int, str]] = {}
    unknown: dict[str, dict[str, None]] = {}
    for gpu in gpus:
        for name, value in _flat(gpu):
            if isinstance(value, Absent):
                unknown.setdefault(value.reason, {})[name] = None
            else:
                told.setdefault(name, {})[gpu.index] = value
    lines = []
    for name, values in told.items():
        same = len(set(values.values())) == 1 and len(values) == len(gpus)
        shown = {"each": next(iter(values.values()))} if same and len(gpus) > 1 else values
        lines += [f"GPU {which} {name}: {value}" for which, value in shown.items()]
    return [*lines, *(f"GPU facts not known ({reason}): {', '.join(names)}" for reason, names in unknown.items())]


def _flat(gpu: Gpu) -> Iterator[tuple[str, str | Absent]]:
    """The facts of a GPU that were read or failed to be read, as words; those of its link under 'link.'."""
    for part, prefix in ((gpu, ""), (gpu.link, "link.")):
        for field in fields(part):
            value = getattr(part, field.name)
            if field.name in ("index", "processes", "link") or value == NOT_READ:
                continue
            yield prefix + field.name, value if isinstance(value, Absent) else _words(value)


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {item}" for name, item in value.items()) or "none"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _measured(gpu: Gpu, row: Sequence[str]) -> Sequence[str]:
    """The cells with more than the name and the size, which every list of cards has."""
    return (_gib(gpu.memory_used_bytes), *row[3:])


def _row(gpu: Gpu) -> tuple[str, ...]:
    lost = gpu.lost is True or (not isinstance(gpu.nvml_code, Absent) and gpu.nvml_code != 0)
    name = _text(gpu.name).removeprefix("NVIDIA ")[:_WIDEST_NAME]
    return (
        str(gpu.index),
        f"{name} does not answer" if lost else name,
        _of(_gib(gpu.memory_used_bytes), _gib(gpu.memory_total_bytes)),
        _text(gpu.temperature_c),
        _of(_whole(gpu.power_w), _whole(gpu.power_limit_w)),
        _of(_text(gpu.sm_clock_mhz), _text(gpu.sm_clock_max_mhz)),
        _link(gpu.link),
        _ecc(gpu),
        DASH if isinstance(gpu.processes, Absent) else str(len(gpu.processes)),
    )


def _holder(gpu: Gpu, process: GpuProcess) -> tuple[str, ...]:
    places = [place for place in (process.job, process.container) if not isinstance(place, Absent)]
    command = process.name if isinstance(process.command, Absent) else process.command
    return (
        str(gpu.index),
        str(process.pid),
        _text(process.user),
        DASH if isinstance(process.age_s, Absent) else format_seconds(process.age_s),
        _gib(process.memory_bytes),
        _text(command),
        ", ".join(places) or DASH,
        DASH if isinstance(process.own, Absent) else ("yes" if process.own else "no"),
    )


def _of(now: str, most: str) -> str:
    return DASH if now == most == DASH else f"{now}/{most}"


def _gib(count: Fact[int]) -> str:
    return DASH if isinstance(count, Absent) else f"{count / GIB:.{1 if count < 100 * GIB else 0}f}"


def _whole(number: Fact[float]) -> str:
    return DASH if isinstance(number, Absent) else f"{number:.0f}"


def _text(fact: Fact[T]) -> str:
    return DASH if isinstance(fact, Absent) else str(fact)


def _link(link: Link) -> str:
    """'1x16/5x16': generation and lanes now, and the most that card and slot support."""
    now, most = _lanes(link.generation, link.width), _lanes(link.generation_max, link.width_max)
    return _of(now, most)


def _lanes(generation: Fact[int], width: Fact[int]) -> str:
    both_unknown = isinstance(generation, Absent) and isinstance(width, Absent)
    return DASH if both_unknown else f"{_text(generation)}x{_text(width)}"


def _ecc(gpu: Gpu) -> str:
    """Uncorrected errors since the driver was loaded; 'off' if the owner switched ECC off."""
    if gpu.ecc_enabled is False:
        return "off"
    return _text(gpu.ecc_uncorrected_volatile)
