"""Charts as SVG text that takes its colours from the page: lines and points on linear or logarithmic axes; a bar of
shares. A chart is drawn twice, for a screen and for a phone, and the page shows the one that fits."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpudoc.frozen import dataclass

_LETTER = 7.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartFrame:
    """The size of a drawing, and how many ticks an axis may have; `kind` is the class that the page shows or hides."""

    kind: str
    width: int
    height: int
    num_ticks: int
    left: int = 72
    right: int = 16
    bottom: int = 46


WIDE = ChartFrame(kind="wide", width=920, height=330, num_ticks=8)
NARROW = ChartFrame(kind="narrow", width=390, height=290, num_ticks=4, left=64, right=12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Named (x, y) points; `style` is 'line' (with dots), 'curve' (without), 'points', or 'roof' (dashed).

    Measured values are solid; 'roof' is for a limit, a ceiling or a fit. Series with the same `hue` share a colour;
    a series without one has its own.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    style: str = "line"
    hue: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: its label with the unit, whether it is logarithmic, the format of a tick, and the base of the ticks.

    A linear axis begins at zero unless `from_zero` is False; then it spans the values. A y axis needs no label if the
    title names it.
    """

    label: str
    log: bool = False
    tick: Callable[[float], str] = lambda value: f"{value:,.4g}"
    base: int = 10
    from_zero: bool = True


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a whole: its share of 1, and its colour as the page names it."""

    name: str
    share: float
    colour: str = ""


@dataclass(frozen=True, slots=True)
class _Scale:
    axis: Axis
    low: float
    high: float
    start: float
    end: float
    num_ticks: int

    def place(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.axis.log:
            low, high, at = math.log(low), math.log(high), math.log(value)
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        if self.axis.log:
            return _log_ticks(self.low, self.high, self.axis.base, self.num_ticks)
        step = nice_step((self.high - self.low) / self.num_ticks, self.axis.base)
        first = math.ceil(self.low / step)
        return [index * step for index in range(first, math.floor(self.high / step + 1e-9) + 1)]


def line_chart(title: str, series: Sequence[Series], x: Axis, y: Axis, *, fewest_places: int = 2) -> str:
    """The chart as SVG markup; a log axis drops points that are not positive.

    An empty string if there are measured values at fewer than `fewest_places` places along x: one dot shows nothing.
    """
    kept = [_positive(one, x, y) for one in series]
    drawn = [one for one in kept if one.points]
    # a limit or a fit alone shows nothing
    if len({px for one in drawn if one.style != "roof" for px, _ in one.points}) < fewest_places:
        return ""
    return "".join(_drawing(title, drawn, (x, y), frame) for frame in (WIDE, NARROW))


def share_bar(parts: Sequence[Part]) -> str:
    """One bar cut into its parts, with a key that gives every share; parts without a share are left out."""
    there = [part for part in parts if part.share > 0]
    kept = [replace(part, colour=part.colour or f"var(--s{index % 6})") for index, part in enumerate(there)]
    told = ", ".join(f"{part.name} {_percent(part.share)}" for part in kept)
    pieces = "".join(
        f'<i style="flex:{part.share:.5f};background:{part.colour}" title="{html.escape(part.name)}"></i>'
        for part in kept
    )
    key = "".join(
        f'<li><i style="background:{part.colour}"></i>{html.escape(part.name)} <b>{_percent(part.share)}</b></li>'
        for part in kept
    )
    return f'<div class="bar" role="img" aria-label="{html.escape(told)}">{pieces}</div><ul class="key">{key}</ul>'


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.095 or share == 0 else f"{share:.1%}"


def _drawing(title: str, drawn: Sequence[Series], axes: tuple[Axis, Axis], frame: ChartFrame) -> str:
    x, y = axes
    legend, num_rows = _legend(drawn, frame) if len(drawn) > 1 else ("", 0)
    top = (50 if y.label else 32) + 22 * num_rows
    total = top + frame.height - frame.bottom
    across = _scale(x, [px for one in drawn for px, _ in one.points], (frame.left, frame.width - frame.right), frame)
    bottom = total - frame.bottom
    up = _scale(y, [py for one in drawn for _, py in one.points], (bottom, top), frame)
    marks = "".join(_series(one, index, across, up) for index, one in enumerate(drawn))
    return (
        f'<svg class="{frame.kind}" viewBox="0 0 {frame.width} {total}" role="img" aria-label="{html.escape(title)}" '
        'xmlns="http://www.w3.org/2000/svg" font-family="system-ui,sans-serif" font-size="13">'
        f'<text x="0" y="16" font-size="15" font-weight="600" fill="var(--ink)">{html.escape(title)}</text>'
        f"{legend}{_grid(across, up)}{marks}</svg>"
    )


def _positive(series: Series, x: Axis, y: Axis) -> Series:
    points = tuple((px, py) for px, py in series.points if (px > 0 or not x.log) and (py > 0 or not y.log))
    return replace(series, points=points)


def _scale(axis: Axis, values: Sequence[float], ends: tuple[float, float], frame: ChartFrame) -> _Scale:
    low, high = min(values), max(values)
    # ticks on the y axis need less room than those on the x axis, whose labels stand side by side
    num_ticks = 5 if ends[0] > ends[1] else frame.num_ticks
    if axis.log:
        return _Scale(axis, low / 1.15, high * 1.15, *ends, num_ticks)
    if axis.from_zero:
        return _Scale(axis, min(0.0, low), high * 1.05 or 1.0, *ends, num_ticks)
    spare = 0.05 * (high - low) or abs(high) * 0.05 or 1.0
    return _Scale(axis, low - spare, high + spare, *ends, num_ticks)


def _grid(across: _Scale, up: _Scale) -> str:
    lines = []
    left, right, bottom = across.start, across.end, up.start
    for value in up.ticks():
        at = up.place(value)
        lines.append(f'<line x1="{left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--line)"/>')
        lines.append(_text(left - 8, at + 4, up.axis.tick(value), "end"))
    for value in across.ticks():
        at = across.place(value)
        lines.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="var(--soft)"/>')
        lines.append(_text(at, bottom + 20, across.axis.tick(value), "middle"))
    lines.append(f'<line x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="var(--soft)"/>')
    lines.append(_text((left + right) / 2, bottom + 40, across.axis.label, "middle"))
    if up.axis.label:
        lines.append(_text(0, up.end - 14, up.axis.label, "start"))
    return "".join(lines)


def _series(series: Series, index: int, across: _Scale, up: _Scale) -> str:
    colour = _colour(series, index)
    placed = [(across.place(x), up.place(y)) for x, y in series.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    dash = ' stroke-dasharray="6 5"' if series.style == "roof" else ""
    line = f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"{dash}/>'
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{html.escape(series.name)}: '
        f"{html.escape(across.axis.tick(px))}, {html.escape(up.axis.tick(py))}</title></circle>"
        for (x, y), (px, py) in zip(placed, series.points, strict=True)
    )
    match series.style:
        case "points":
            return dots
        case "curve" | "roof":
            # a curve of one point would be invisible
            return line if len(placed) > 1 else dots
        case _:
            return line + dots


def _legend(drawn: Sequence[Series], frame: ChartFrame) -> tuple[str, int]:
    """The legend under the title, from left to right in as many rows as needed, and the number of rows."""
    x, row, marks = 0.0, 0, []
    for index, series in enumerate(drawn):
        width = 24 + _LETTER * len(series.name) + 18
        if x and x + width > frame.width:
            x, row = 0.0, row + 1
        y = 39 + 22 * row
        dash = ' stroke-dasharray="5 3"' if series.style == "roof" else ""
        colour = _colour(series, index)
        if series.style == "points":
            marks.append(f'<circle cx="{x + 9:.0f}" cy="{y - 4}" r="4" fill="{colour}"/>')
        else:
            ends = f'x1="{x:.0f}" x2="{x + 18:.0f}" y1="{y - 4}" y2="{y - 4}"'
            marks.append(f'<line {ends} stroke="{colour}" stroke-width="3"{dash}/>')
        marks.append(_text(x + 24, y, series.name, "start"))
        x += width
    return "".join(marks), row + 1


def _colour(series: Series, index: int) -> str:
    return f"var(--s{(index if series.hue is None else series.hue) % 6})"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="var(--soft)">{html.escape(text)}</text>'


def _log_ticks(low: float, high: float, base: int, most: int) -> list[float]:
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    ticks = [float(base) ** power for power in range(first, last + 1)]
    if len(ticks) < 3 and base == 10:
        decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
        ticks = [m * 10.0**power for power in decades for m in (1, 2, 5) if low <= m * 10.0**power <= high]
    if len(ticks) < 2:
        # at most one power lies between the ends: use round steps as on a linear axis
        step = nice_step((high - low) / min(most, 4), base)
        return [index * step for index in range(max(1, math.ceil(low / step)), math.floor(high / step + 1e-9) + 1)]
    stride = max(1, math.ceil(len(ticks) / most))
    return ticks[::stride]


def nice_step(rough: float, base: int = 10) -> float:
    """The smallest round step that is not below `rough`: 1, 2 or 5 times a power of ten, or a power of two."""
    if base == 2:
        return 2.0 ** math.ceil(math.log2(rough))
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
