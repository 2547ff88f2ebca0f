"""The live screen of training: one panel that changes in place."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gpudoc.train.events import PHASES, Progressed, Started
from gpudoc.units import format_bytes, format_rate, format_seconds

_SPARKS = "▁▂▃▄▅▆▇█"
_COLOURS = {
    "data_wait": "red",
    "transfer": "magenta",
    "compute": "green",
    "communicate": "cyan",
    "host": "bright_red",
    "compile": "bright_blue",
    "checkpoint": "blue",
    "evaluate": "yellow",
    "other": "white",
}


class Panel:
    """Loss with its curve, learning rate, throughput, memory, time left, and where the time goes."""

    def __init__(self, started: Started) -> None:
        self._started = started
        self._began = time.monotonic()
        self._losses: list[float] = []
        self._last: Progressed | None = None

    def see(self, event: Progressed) -> None:
        """Take a logged step."""
        self._last = event
        if event.loss == event.loss:
            self._losses.append(event.loss)

    def __rich__(self) -> RenderableType:
        last, started = self._last, self._started
        if last is None:
            return Text(f"step {started.step}/{started.end_step}: the first steps ...")
        done = last.step - started.step
        elapsed = time.monotonic() - self._began
        left = elapsed / done * (last.end_step - last.step) if done else 0.0
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(f"step {last.step}/{last.end_step}", style="bold"),
            ProgressBar(total=max(1, last.end_step), completed=last.step, width=30),
            Text("" if last.epoch is None else f"epoch {last.epoch:.2f}"),
            Text(f"{format_seconds(left)} left" if last.step < last.end_step else "saving the final state"),
        )
        figures = Table.grid(padding=(0, 2))
        figures.add_row(
            Text(f"loss {last.loss:.4f}", style="bold"),
            Text(spark(self._losses)),
            Text(f"lr {last.lr:.2e}"),
            Text(format_rate(last.samples_per_s, "samples/s")),
            Text(f"memory {format_bytes(last.memory_peak_bytes)}"),
        )
        use = f"{used(last.use)}{slow(last)}".strip()
        return Group(head, figures, *([Text(use)] if use else []), self._split(last))

    @staticmethod
    def _split(last: Progressed) -> Text:
        # fits into 80 columns with the names of four phases
        width = 30
        bar = Text()
        for phase in PHASES:
            bar.append("█" * round(width * last.split.share(phase)), style=_COLOURS[phase])
        bar.append("  ")
        for phase in PHASES:
            if last.split.share(phase) >= 0.01:
                bar.append(f"{phase.replace('_', ' ')} {last.split.share(phase):.0%}  ", style=_COLOURS[phase])
        return bar


def used(figures: Mapping[str, float]) -> str:
    """Tokens/s and MFU, each if it is known, as they follow the samples/s."""
    tokens = f"  {format_rate(figures['tokens_per_s'], 'tokens/s')}" if "tokens_per_s" in figures else ""
    return tokens + (f"  MFU {figures['mfu']:.1%}" if "mfu" in figures else "")


def slow(event: Progressed) -> str:
    """The rank that the others wait for, as it follows a step's other figures; '' if there is none."""
    return "" if event.slow is None else f"  rank {event.slow.rank} is {event.slow.factor:.2g}x slower"


def spark(values: list[float], width: int = 16) -> str:
    """The last values as a line of blocks, the lowest the smallest; empty for fewer than two."""
    if len(values) < 2:
        return ""
    stride = max(1, len(values) // width)
    shown = values[::-1][::stride][::-1][-width:]
    low, high = min(shown), max(shown)
    if high <= low:
        return _SPARKS[0] * len(shown)
    return "".join(_SPARKS[round((value - low) / (high - low) * (len(_SPARKS) - 1))] for value in shown)
