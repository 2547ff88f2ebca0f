"""Runs readers over cases until a count or a time is reached, and says what broke which promise."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.entrances import SECRETS
from tests.fuzz.mutation import case, entrance_of
from tests.fuzz.reader import ENDS

ROOT = Path(__file__).resolve().parents[2]
MOST_MIB = 512.0
# gpudoc's own colours; everything else of these kinds is somebody's
_OWN = re.compile(rb"\x1b\[(?:\d{1,3}(?:;\d{1,3})*)?m")
_CONTROL = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]|\r(?!\n)"
)


@dataclass
class Outcome:
    """What a campaign saw: cases by entrance, exit codes, the slowest, the largest, and each broken promise.

    `shut` are entrances that could not be tried here, and why.
    """

    cases: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, -1)
    largest: tuple[float, int] = (0.0, -1)
    broken: dict[str, list[int]] = field(default_factory=dict)
    shut: dict[str, str] = field(default_factory=dict)

    def breaks(self, promise: str, number: int) -> None:
        self.broken.setdefault(promise, []).append(number)

    def add(self, other: Outcome) -> None:
        """Take in what another campaign saw."""
        self.cases += other.cases
        self.codes += other.codes
        self.shut.update(other.shut)
        self.slowest, self.largest = max(self.slowest, other.slowest), max(self.largest, other.largest)
        for promise, numbers in other.broken.items():
            self.broken.setdefault(promise, []).extend(numbers)


class _Reader:
    """A process with a terminal as its standard output, that takes every `step`-th case from `first` on."""

    def __init__(self, first: int, step: int) -> None:
        screen, inner = pty.openpty()
        told, theirs = os.pipe()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "100"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.reader", str(theirs), str(first), str(step)],
            stdin=subprocess.DEVNULL, stdout=inner, stderr=subprocess.PIPE, pass_fds=(theirs,),
            env=environment, cwd=ROOT,
        )  # fmt: skip
        os.close(inner)
        os.close(theirs)
        assert self.process.stderr is not None
        self.files = {screen: "screen", told: "told", self.process.stderr.fileno(): "errors"}
        self.step = step
        # apart, or a colour of one would be cut by a line of the other
        self.shown = {"screen": b"", "errors": b""}
        self._rest = b""
        self.running, self.since = first, time.monotonic()

    def rows(self, patience_s: float) -> Iterator[dict[str, object] | None]:
        """A row for each case that ended, None at the end of the process; a case beyond `patience_s` ends it."""
        while True:
            ready, _, _ = select.select(list(self.files), [], [], 0.5)
            for file in ready:
                data = b""
                with contextlib.suppress(OSError):
                    data = os.read(file, 1 << 16)
                if not data:
                    if self.files.pop(file) == "told":
                        yield None
                        return
                elif self.files[file] == "told":
                    self._rest += data
                else:
                    self.shown[self.files[file]] += data
            while b"\n" in self._rest:
                line, _, self._rest = self._rest.partition(b"\n")
                row = json.loads(line)
                if "begins" in row:
                    self.running, self.since = int(row["begins"]), time.monotonic()
                else:
                    yield row
            if time.monotonic() - self.since > patience_s:
                self.process.send_signal(signal.SIGKILL)

    def take(self, stream: str, number: int) -> bytes:
        """What the case wrote there, once all of it has come."""
        end = f"{ENDS}{number}".encode()
        file = next(one for one, what in self.files.items() if what == stream)
        while end not in self.shown[stream]:
            self.shown[stream] += os.read(file, 1 << 16)
        wrote, _, self.shown[stream] = self.shown[stream].partition(end)
        return wrote

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for file in self.files:
            if self.files[file] != "errors":
                os.close(file)
        assert self.process.stderr is not None
        self.process.stderr.close()


def run(
    first: int = 0,
    *,
    most: int | None = None,
    seconds: float | None = None,
    patience_s: float = 30.0,
    slow_s: float = 5.0,
) -> Outcome:
    """Cases from `first` on, at most so many or for so long; a reader that dies is replaced behind the case it had."""
    outcome, began, number = Outcome(), time.monotonic(), first
    while True:
        reader = _Reader(number, 1)
        try:
            for row in reader.rows(patience_s):
                if row is None:
                    number = reader.running + 1
                    outcome.breaks("a case ends its process, or takes longer than the patience", reader.running)
                    break
                number = int(str(row["number"])) + 1
                if "shut" in row:
                    outcome.shut[entrance_of(number - 1).name] = str(row["shut"])
                    continue
                _judge(row, reader, outcome, slow_s)
                done = sum(outcome.cases.values())
                if (most is not None and done >= most) or (seconds is not None and time.monotonic() - began > seconds):
                    return outcome
        finally:
            reader.close()


def _judge(row: dict[str, object], reader: _Reader, outcome: Outcome, slow_s: float) -> None:
    number, code = int(str(row["number"])), int(str(row["code"]))
    entrance, _, _, mode = case(number)
    spent, grew = float(str(row["seconds"])), float(str(row["grew"]))
    outcome.cases[entrance.name] += 1
    outcome.codes[code] += 1
    outcome.slowest = max(outcome.slowest, (spent, number))
    outcome.largest = max(outcome.largest, (grew, number))
    shown = [reader.take(stream, number) for stream in ("screen", "errors")]
    if code not in (0, 1, 2):
        outcome.breaks(f"exit code {code}: {str(row['fault']).strip().splitlines()[-1:]}", number)
    if spent > slow_s:
        outcome.breaks(f"more than {slow_s:.0f} CPU seconds", number)
    if grew > MOST_MIB:
        outcome.breaks(f"more than {MOST_MIB:.0f} MiB", number)
    if any(_CONTROL.search(_OWN.sub(b"", text)) for text in shown):
        outcome.breaks("a control character reaches the terminal", number)
    if mode in ("--json", "--markdown") and any(secret.encode() in text for secret in SECRETS for text in shown):
        outcome.breaks("a secret leaves the machine", number)
