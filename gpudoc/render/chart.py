"""Small charts as SVG text that takes its colours from the page: lines and points on linear or logarithmic axes."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 80, 14, 26, 46


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Named (x, y) points; `style` is 'line' (with dots), 'points', or 'roof' (dashed, no dots).

    Series of one `hue` share a colour; without one each has its own.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    style: str = "line"
    hue: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: its label with the unit, whether it is logarithmic, how a tick is written, what it is a multiple of."""

    label: str
    log: bool = False
    tick: Callable[[float], str] = lambda value: f"{value:g}"
    base: int = 10


@dataclass(frozen=True, slots=True)
class _Scale:
    axis: Axis
    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.axis.log:
            low, high, at = math.log(low), math.log(high), math.log(value)
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.axis.log:
            return _log_ticks(self.low, self.high, self.axis.base)
        step = _nice_step((self.high - self.low) / 5, self.axis.base)
        first = math.ceil(self.low / step)
        return [index * step for index in range(first, math.floor(self.high / step + 1e-9) + 1)]


def line_chart(title: str, series: Sequence[Series], x: Axis, y: Axis) -> str:
    """The chart as SVG markup; a log axis drops points that are not positive. Without any point: an empty string."""
    kept = [_positive(one, x, y) for one in series]
    drawn = [one for one in kept if one.points]
    if not drawn:
        return ""
    across = _scale(x, [px for one in drawn for px, _ in one.points], LEFT, WIDTH - RIGHT)
    num_rows = math.ceil(len(drawn) / 2)
    bottom = HEIGHT - BOTTOM
    up = _scale(y, [py for one in drawn for _, py in one.points], bottom, TOP)
    total = HEIGHT + 18 * num_rows
    marks = "".join(_series(one, index, across, up) for index, one in enumerate(drawn))
    legend = "".join(_legend(one, index) for index, one in enumerate(drawn))
    return (
        f'<svg viewBox="0 0 {WIDTH} {total}" role="img" aria-label="{html.escape(title)}" '
        'xmlns="http://www.w3.org/2000/svg" font-family="system-ui,sans-serif" font-size="13">'
        f'<text x="0" y="14" font-weight="600" fill="var(--ink)">{html.escape(title)}</text>'
        f"{_grid(across, up)}{marks}{legend}</svg>"
    )


def _positive(series: Series, x: Axis, y: Axis) -> Series:
    points = tuple((px, py) for px, py in series.points if (px > 0 or not x.log) and (py > 0 or not y.log))
    return replace(series, points=points)


def _scale(axis: Axis, values: Sequence[float], start: float, end: float) -> _Scale:
    low, high = min(values), max(values)
    if axis.log:
        return _Scale(axis, low / 1.3, high * 1.3, start, end)
    return _Scale(axis, min(0.0, low), high * 1.08 or 1.0, start, end)


def _grid(across: _Scale, up: _Scale) -> str:
    lines = []
    for value in up.ticks():
        at = up.place(value)
        lines.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--line)"/>')
        lines.append(_text(LEFT - 6, at + 4, up.axis.tick(value), "end"))
    for value in across.ticks():
        at = across.place(value)
        lines.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="var(--line)"/>')
        lines.append(_text(at, HEIGHT - BOTTOM + 16, across.axis.tick(value), "middle"))
    lines.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, across.axis.label, "middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    label = html.escape(up.axis.label)
    lines.append(
        f'<text x="12" y="{middle}" transform="rotate(-90 12 {middle})" text-anchor="middle" fill="var(--soft)">'
        f"{label}</text>"
    )
    return "".join(lines)


def _series(series: Series, index: int, across: _Scale, up: _Scale) -> str:
    colour = _colour(series, index)
    placed = [(across.place(x), up.place(y)) for x, y in series.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    dash = ' stroke-dasharray="5 4"' if series.style == "roof" else ""
    line = f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{html.escape(series.name)}: '
        f"{html.escape(across.axis.tick(px))}, {html.escape(up.axis.tick(py))}</title></circle>"
        for (x, y), (px, py) in zip(placed, series.points, strict=True)
    )
    match series.style:
        case "points":
            return dots
        case "roof":
            return line
        case _:
            return line + dots


def _legend(series: Series, index: int) -> str:
    x = LEFT + (index % 2) * (WIDTH - LEFT) / 2
    y = HEIGHT + 6 + 18 * (index // 2)
    colour = _colour(series, index)
    if series.style == "roof":
        mark = f'<line x1="{x:.0f}" x2="{x + 13:.0f}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="2" '
        return mark + 'stroke-dasharray="5 3"/>' + _text(x + 18, y + 1, series.name, "start")
    return f'<rect x="{x:.0f}" y="{y - 9}" width="11" height="11" rx="2" fill="{colour}"/>' + _text(
        x + 16, y + 1, series.name, "start"
    )


def _colour(series: Series, index: int) -> str:
    return f"var(--s{(index if series.hue is None else series.hue) % 6})"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="var(--soft)">{html.escape(text)}</text>'


def _log_ticks(low: float, high: float, base: int) -> list[float]:
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    ticks = [float(base) ** power for power in range(first, last + 1)]
    if len(ticks) < 3 and base == 10:
        decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
        ticks = [m * 10.0**power for power in decades for m in (1, 2, 5) if low <= m * 10.0**power <= high]
    stride = max(1, math.ceil(len(ticks) / 6))
    return ticks[::stride]


def _nice_step(rough: float, base: int) -> float:
    if base == 2:
        return 2.0 ** math.ceil(math.log2(rough))
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
