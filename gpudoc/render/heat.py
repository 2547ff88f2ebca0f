"""Heat maps of nodes and GPUs as SVG text: the oddest node first, each step of colour one path, so that thousands of
GPUs are some hundred kilobytes."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from gpudoc.fleet.record import Spot
from gpudoc.fleet.scores import At

# the limits between the colours in standard deviations, the worst first; the last colour is for usual or better
_STEPS = (-6.0, -4.0, -3.0, -2.0, -1.0)
_COLOURS = ("#7f0000", "#c62828", "#ef6c00", "#f9a825", "#d4c27a", "#8fb8a8")
_WORDS = ("6 σ and more", "4 σ", "3 σ", "2 σ", "1 σ", "less")
_NOT_MEASURED = "var(--line)"
_GAP, _BAND, _LEFT, _TOP, _WIDTH, _LEGEND = 1, 100, 64, 24, 664, 92
# up to 32 nodes get cells that are large enough for their numbers above
_FEW, _CELL_OF_FEW, _CELL = 32, 18, 6


def heat_map(title: str, z: Mapping[At, float], gpus: Sequence[int]) -> str:
    """One map: a column per node, a row per GPU, in bands of a hundred nodes; '' if no single place has a figure.

    `gpus` is the number of GPUs of every node of the record: an unmeasured cell is grey, never green.
    """
    single = {at[0]: value for at, value in z.items() if len(at) == 1}
    if not single:
        return ""
    order = order_of(single, len(gpus))
    cell = _CELL_OF_FEW if len(order) <= _FEW else _CELL
    rows = 1 if all(spot.gpu < 0 for spot in single) else max((*gpus, 1))
    band_height = rows * cell + 16
    paths: dict[str, list[str]] = {}
    for column, number in enumerate(order):
        left = _LEFT + column % _BAND * cell
        top = _TOP + column // _BAND * band_height + 12
        for row in range(1 if rows == 1 else gpus[number]):
            spot = Spot(number, row) if rows > 1 or Spot(number) not in single else Spot(number)
            side = cell - _GAP
            drawn = f"M{left} {top + row * cell}h{side}v{side}h-{side}z"
            paths.setdefault(colour_of(single.get(spot)), []).append(drawn)
    bands = -(-len(order) // _BAND)
    height = _TOP + bands * band_height + 36
    cells = "".join(f'<path fill="{colour}" d="{"".join(parts)}"/>' for colour, parts in paths.items())
    labels = _numbers(order, rows, cell) if cell == _CELL_OF_FEW else _bands(len(order), bands, band_height)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{html.escape(title)}" '
        'xmlns="http://www.w3.org/2000/svg" font-family="system-ui,sans-serif" font-size="9" fill="var(--soft)">'
        f'<text x="0" y="12" font-size="13" font-weight="600" fill="var(--ink)">{html.escape(title)}</text>'
        f"{labels}{cells}{_legend(height)}</svg>"
    )


def _numbers(order: Sequence[int], rows: int, cell: int) -> str:
    """The labels: the node above each column, the GPU before each row."""
    columns = [f'<text x="{_LEFT + i * cell}" y="{_TOP + 8}">{number}</text>' for i, number in enumerate(order)]
    lines = [f'<text x="0" y="{_TOP + 24 + row * cell}">GPU {row}</text>' for row in range(rows if rows > 1 else 0)]
    return "".join([f'<text x="0" y="{_TOP + 8}">node</text>', *columns, *lines])


def _bands(nodes: int, bands: int, height: int) -> str:
    """The labels of the bands: the nodes in each, counted from the oddest."""
    return "".join(
        f'<text x="0" y="{_TOP + band * height + 20}">{band * _BAND + 1} to {min(nodes, (band + 1) * _BAND)}</text>'
        for band in range(bands)
    )


def order_of(single: Mapping[Spot, float], nodes: int) -> list[int]:
    """The nodes by their worst place, the oddest first; those without a figure last."""
    worst = dict.fromkeys(range(nodes), float("inf"))
    for spot, value in single.items():
        worst[spot.node] = min(worst[spot.node], value)
    return sorted(worst, key=lambda number: (worst[number], number))


def colour_of(z: float | None) -> str:
    """The cell's colour; an unmeasured cell has the page's own line colour."""
    if z is None:
        return _NOT_MEASURED
    return next((colour for step, colour in zip(_STEPS, _COLOURS, strict=False) if z <= step), _COLOURS[-1])


def _legend(height: int) -> str:
    items = [*zip(_COLOURS, _WORDS, strict=True), (_NOT_MEASURED, "not measured")]
    return "".join(
        f'<path fill="{colour}" d="M{index * _LEGEND} {height - 10}h8v8h-8z"/>'
        f'<text x="{index * _LEGEND + 11}" y="{height - 2}">{word}</text>'
        for index, (colour, word) in enumerate(items)
    )
