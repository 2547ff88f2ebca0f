"""Bytes, seconds and rates as text, and back. 1 GB is 10^9 bytes, 1 GiB is 2^30."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoc.patterns import Pattern

KIB = 1024
MIB = 1024**2
GIB = 1024**3
# the most pieces of a list of numbers that are shown
_MOST_RUNS = 6

_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "k": KIB,
    "kib": KIB,
    "m": MIB,
    "mib": MIB,
    "g": GIB,
    "gib": GIB,
    "t": 1024**4,
    "tib": 1024**4,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_DURATION_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_size(text: str) -> int:
    """Bytes in `text`: '8GiB', '512 MiB', '8G' (binary), '8GB' (decimal) or a plain number; ValueError otherwise."""
    match = Pattern(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)").fullmatch(text.strip())
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise ValueError(f"not a size: {text!r}; write for example 8GiB, 512MiB or a number of bytes")
    return int(float(match[1]) * _SIZE_UNITS[match[2].lower()])


def parse_duration(text: str) -> float:
    """Seconds in `text`: '90', '90s', '5m', '1h', '1h30m'; ValueError otherwise."""
    parts = Pattern(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)").findall(text.strip())
    rebuilt = "".join(number + unit for number, unit in parts)
    if (
        not parts
        or rebuilt != Pattern(r"\s+").sub("", text)
        or any(unit.lower() not in _DURATION_UNITS for _, unit in parts)
    ):
        raise ValueError(f"not a duration: {text!r}; write for example 90s, 5m or 1h30m")
    return sum(float(number) * _DURATION_UNITS[unit.lower()] for number, unit in parts)


def format_bytes(count: float) -> str:
    """`count` bytes in binary units with three significant digits: '3.42 GiB'."""
    sign, size = ("-", -count) if count < 0 else ("", count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{sign}{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{sign}{size:.3g} {unit}"
        size /= 1024
    return f"{sign}{size:.3g} TiB"


def format_seconds(seconds: float) -> str:
    """A duration as people say it: '850 ms', '4.2 s', '3 min 05 s', '2 h 10 min'."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_count(count: int, what: str) -> str:
    """A number of things, `what` in the singular: '1 step', '2,000 steps'."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def format_ranks(ranks: Iterable[int]) -> str:
    """'rank 3', 'ranks 0 to 16 and 18 to 63': in order, with only the first of many pieces."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    said = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    if not said:
        return "no rank"
    if len(said) > _MOST_RUNS:
        rest = sum(last - first + 1 for first, last in runs[_MOST_RUNS - 1 :])
        said = [*said[: _MOST_RUNS - 1], f"{rest} more"]
    plural = "" if runs[0][0] == runs[-1][1] else "s"
    return f"rank{plural} " + (", ".join(said[:-1]) + f" and {said[-1]}" if len(said) > 1 else said[0])


def format_rate(value: float, unit: str) -> str:
    """A rate with three significant digits and thousands separators: '12,300 samples/s'."""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{text} {unit}"


def format_figure(value: object, form: str) -> str:
    """A number of a document, where null stands for inf and NaN."""
    return format(value, form) if isinstance(value, int | float) else "that is not finite"
