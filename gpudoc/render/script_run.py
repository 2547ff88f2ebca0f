"""The messages about a running command, all on stderr: its progress, its end, and where its time went."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from dataclasses import dataclass

from gpudoc.control_characters import escape_controls, escape_line
from gpudoc.facts.redact import Private, private
from gpudoc.process.ending import how_it_ended
from gpudoc.render import console
from gpudoc.script.apply import Applied
from gpudoc.script.messages import LoaderSeen
from gpudoc.script.run import RunEnd, RunTimes, Status
from gpudoc.train.document import CommandSummary
from gpudoc.units import format_bytes, format_count, format_rate, format_seconds

# without a terminal, the first line comes after 10 s and the next ones ever more rarely, at least every 300 s
_FIRST_S, _RAREST_S = 10.0, 300.0
_PIECE_BYTES = 4096


@dataclass(slots=True)
class RunScreen:
    """Satisfies `script.run.RunListener`: shows the command's output as it comes, and gpudoc's own lines on stderr.

    On a terminal the status is one line below the output, drawn only after a complete line.
    """

    as_json: bool = False
    plain: bool = False
    _width: int = 0
    _is_line_over: bool = True
    _next_s: float = _FIRST_S

    @property
    def _draws(self) -> bool:
        return sys.stderr.isatty() and not self.plain

    def output(self, number: int, data: bytes) -> None:
        """Write the output to its own stream; to stderr with --json, since stdout is for one document."""
        self._clear()
        number = 2 if self.as_json else number
        _write(number, data)
        if os.isatty(number):
            self._is_line_over = data.endswith(b"\n")

    def say(self, text: str) -> None:
        """Write one of gpudoc's own lines."""
        # the command goes on even if nobody reads stderr
        with contextlib.suppress(BrokenPipeError):
            self._clear()
            _write(2, f"{'' if self._is_line_over else chr(10)}gpudoc: {escape_controls(text)}\n".encode())
        self._is_line_over = True

    def status(self, status: Status) -> None:
        """Redraw the status on a terminal; else write a line from time to time."""
        if not self._draws:
            if status.seconds >= self._next_s:
                self._next_s = status.seconds + min(_RAREST_S, status.seconds)
                self.say(status_line(status))
            return
        if not self._is_line_over:
            return
        line = escape_line(status_line(status))[: max(20, os.get_terminal_size(2).columns - 1)]
        self._clear()
        _write(2, line.encode())
        self._width = len(line)

    def _clear(self) -> None:
        if self._width:
            _write(2, b"\r" + b" " * self._width + b"\r")
            self._width = 0

    def begin(self, applied: Applied) -> None:
        """Say which settings are applied, each with its source."""
        for sentence in applied.sentences:
            self.say(sentence)

    def show(self, finished: RunEnd) -> int:
        """Say how the command ended, and return the exit code."""
        self._clear()
        if self.as_json:
            console.print_json(document_of(finished))
            return finished.exit_code
        for line in last_words(finished):
            self.say(line)
        if finished.report is not None and finished.report.findings:
            from gpudoc.render.doctor import render

            text = render(finished.report)
            console.stderr(plain=self.plain).print(text, end="", soft_wrap=True)
        return finished.exit_code


def status_line(status: Status) -> str:
    """The progress of a run, in one line."""
    parts = [f"step {status.steps:,}", *_figures(status), format_seconds(status.seconds)]
    return " · ".join(parts)


def last_words(finished: RunEnd) -> list[str]:
    """How a run ended, its work, where its time went, the applied settings, and the allocator's state when it died."""
    ended = "interrupted; it " if finished.interrupted else "the command "
    lines = [f"{ended}{how_it_ended(finished.code)} after {format_seconds(finished.seconds)}"]
    if finished.kernel_killed:
        lines[0] += ": the kernel killed it because its cgroup ran out of memory"
    if finished.ended_for is not None:
        lines.append(f"--on-hang end: {finished.ended_for.say}")
    status, split = finished.status, finished.split
    if status is None or split is None:
        lines += _nothing_seen(finished)
    else:
        lines.append(", ".join([format_count(status.steps, "step"), *_figures(status)]))
        lines.append(f"where the time went: {_shares(split, finished.seconds)}")
    if any(seen.has_diverged for seen in finished.ranks):
        lines.append(
            "its weights are NaN or infinite at the end, so it no longer learns; lower the learning rate, clip "
            "gradients, or look for NaN in the data"
        )
    lines += _applied(finished)
    lines += _died(finished)
    lines += [f"{name} outlived the command and was killed" for name in finished.left]
    stuck = "outlived the command and cannot be killed, because it waits in the kernel for a device or a file system"
    lines += [f"{name} {stuck}" for name in finished.stuck]
    asides = dict.fromkeys(why for seen in finished.seen for why in seen.asides)
    return lines + [f"not watched to the end: {why}" for why in asides]


def _figures(status: Status) -> list[str]:
    parts = []
    if status.samples_per_s is not None:
        ranks = f" on {status.ranks} ranks" if status.ranks > 1 else ""
        parts.append(format_rate(status.samples_per_s, "samples/s") + ranks)
    if status.peak_bytes is not None:
        each = " a rank" if status.ranks > 1 else ""
        parts.append(f"peak memory {format_bytes(status.peak_bytes)}{each}")
    if status.wait_share is not None:
        parts.append(f"{status.wait_share:.0%} waiting for data")
    return parts


def _nothing_seen(finished: RunEnd) -> list[str]:
    if not finished.seen:
        return [
            "none of its Python processes imported torch"
            if finished.code == 0
            else "it ended before torch was imported"
        ]
    return ["no optimizer step was seen"]


def _shares(split: RunTimes, seconds: float) -> str:
    named = (
        ("start", split.start),
        ("waiting for data", split.data_wait),
        ("steps", split.steps),
        ("evaluating", split.evaluate),
        ("end", split.end),
    )
    shown = [(name, part) for name, part in named if part >= 0.005 * seconds or name in ("waiting for data", "steps")]
    return " · ".join(f"{name} {format_seconds(part)} ({part / max(seconds, 1e-9):.0%})" for name, part in shown)


def _applied(finished: RunEnd) -> list[str]:
    """Which of the profile's settings each loader took or refused in the command's process."""
    order = finished.applied.order
    if (order.loader is None and order.batch is None) or not finished.ranks:
        return []
    built = finished.ranks[0].loaders
    changed = [loader for loader in built if loader.applied or loader.refused]
    if changed:
        return list(dict.fromkeys(line for loader in changed for line in _of_loader(loader)))
    same = dict.fromkeys(loader.place for loader in built if loader.key in order.keys)
    if same:
        return [f"{place}: already has the settings of the profile" for place in same]
    return ["no loader in the profile was built, so none of its settings were applied"]


def _of_loader(loader: LoaderSeen) -> list[str]:
    lines = []
    if loader.applied:
        settings = ", ".join(f"{name} {value}" for name, value in loader.applied.items())
        lines.append(f"{loader.place}: applied {settings}")
    lines += [f"{loader.place}: {name} left unchanged: {why}" for name, why in loader.refused.items()]
    return lines + [f"{loader.place}: {note}" for note in loader.notes]


def _died(finished: RunEnd) -> list[str]:
    lines = []
    for seen in finished.seen if finished.code and not finished.interrupted else ():
        if seen.error is None:
            continue
        rank = f"rank {seen.rank}: " if len(finished.seen) > 1 and seen.rank is not None else ""
        lines.append(f"{rank}{seen.error.text}"[:500])
        if seen.error.shortage is not None and seen.error.allocator:
            held = (
                f"{name.removesuffix('_bytes').replace('_', ' ')} {format_bytes(size)}"
                for name, size in seen.error.allocator.items()
            )
            lines.append(f"{rank}the allocator: {', '.join(held)}")
    return lines


def document_of(finished: RunEnd) -> Private:
    """The run as `gpudoc.train.v1`, without the names of people and machines."""
    from gpudoc.doctor import document

    status, split = finished.status, finished.split
    found: CommandSummary = {
        "schema": "gpudoc.train.v1",
        "status": "interrupted" if finished.interrupted else "failed" if finished.exit_code else "finished",
        "command": {
            "exit_code": finished.code if finished.code >= 0 else None,
            "signal": -finished.code if finished.code < 0 else None,
        },
        "profile": finished.applied.profile,
        "said": list(finished.applied.sentences),
        "elapsed_s": round(finished.seconds, 3),
        "steps": None if status is None else status.steps,
        "ranks": len(finished.ranks),
        "samples_per_s": None if status is None or status.samples_per_s is None else round(status.samples_per_s, 2),
        "wait_share": None if status is None or status.wait_share is None else round(status.wait_share, 4),
        "memory_peak_bytes": None if status is None else status.peak_bytes,
        "seconds": None if split is None else {name: round(getattr(split, name), 3) for name in RunTimes.__slots__},
        "loaders": [
            {
                "at": loader.place,
                "key": loader.key,
                "applied": {str(name): value for name, value in loader.applied.items()},
                "refused": {str(name): why for name, why in loader.refused.items()},
                "notes": list(loader.notes),
            }
            for seen in finished.ranks[:1]
            for loader in seen.loaders
        ],
        "errors": [{"rank": s.rank, "text": s.error.text, **s.error.allocator} for s in finished.seen if s.error],
        "hangs": [hung.document() for hung in (*finished.hangs, *filter(None, [finished.ended_for]))],
        "left": list(finished.left),
        "stuck": list(finished.stuck),
    }
    if finished.report is not None:
        found["report"] = document.dump(finished.report)
    return private(found)


def _write(number: int, data: bytes) -> None:
    """Write all of `data`, even if the reader is slow or the stream does not block."""
    while data:
        if not select.select([], [number], [], 1.0)[1]:
            continue
        try:
            data = data[os.write(number, data[:_PIECE_BYTES]) :]
        except BlockingIOError:
            time.sleep(0.01)
