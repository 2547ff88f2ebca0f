"""Outputs of figures besides the screen: metrics.jsonl always, TensorBoard, Weights & Biases or trackio on request."""

from __future__ import annotations

import importlib
import json
import math
import os
import time
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Protocol

from gpudoc.errors import GpudocError
from gpudoc.train.state.run_dir import Run

# NaN and infinity raise: JSON cannot represent them
_encode = json.JSONEncoder(allow_nan=False).encode
NAMES = ("tensorboard", "wandb", "trackio")
# rows wait this long to be written together: a write of one row between two steps takes four times as long
_TOGETHER_S = 0.5
# the most bytes of rows that wait for a disk: some 60,000 rows
_MOST_WAITING_BYTES = 32 << 20


class Sink(Protocol):
    """An external output for figures; `name` is its name in --log-to."""

    name: str

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """Take the figures of a step."""

    def close(self) -> None:
        """Flush and end."""


class Sinks:
    """metrics.jsonl, one object per line, and the requested sinks.

    Faults of a disk or a sink never end a training: rows wait until they can be written, a sink that fails gets no
    more of them, and `tell` reports both.
    """

    def __init__(self, run: Run, extra: tuple[Sink, ...] = ()) -> None:
        self._place = run.metrics
        try:
            self._stream: FileIO | None = _open_rows(self._place)
        except OSError as problem:
            raise GpudocError(f"{run.metrics}: cannot be written: {problem.strerror}", hint="--run-dir DIR") from None
        self._extra = extra
        self._waiting: list[Mapping[str, object]] = []
        self._written = -math.inf
        self._rows = bytearray()
        self._reason = ""
        self._num_dropped = 0
        self._untold: list[str] = []

    def add(self, document: Mapping[str, object]) -> None:
        """Take one object; writes it now, or together with the next ones if the last write was less than 0.5 s ago."""
        self._waiting.append(document)
        if time.perf_counter() - self._written >= _TOGETHER_S:
            self.write()

    def write(self) -> None:
        """Write the waiting objects; numbers that JSON cannot represent become null."""
        waiting, self._waiting = self._waiting, []
        for document in waiting:
            try:
                text = _encode(document)
            except ValueError:
                text = _encode(finite(document))
            if len(self._rows) < _MOST_WAITING_BYTES:
                self._rows += text.encode() + b"\n"
            else:
                self._num_dropped += 1
            step = document.get("step")
            self._hand_on(step if isinstance(step, int) else 0, document)
        self._write_rows()
        self._written = time.perf_counter()

    def close(self) -> None:
        """End all sinks."""
        self.write()
        lost = self._rows.count(b"\n") + self._num_dropped
        if lost:
            self._untold.append(
                f"{self._place}: {lost} rows are missing because they could not be written: {self._reason}"
            )
        if self._stream is not None:
            self._stream.close()
        for sink in self._extra:
            try:
                sink.close()
            except Exception as problem:
                self._give_up(sink, problem)

    def tell(self) -> list[str]:
        """Messages about faults, and about their end, since the last call."""
        told, self._untold = self._untold, []
        return told

    def _write_rows(self) -> None:
        try:
            if self._rows and not self._is_there():
                self._stream = _open_rows(self._place)
            while self._rows and self._stream is not None:
                # a full disk may accept a part; the rest follows when there is room
                del self._rows[: self._stream.write(self._rows)]
        except OSError as problem:
            self._stream = None
            if not self._reason:
                kept = "training continues; they are kept and tried again"
                self._untold.append(f"{self._place}: rows cannot be written: {problem.strerror or problem}; {kept}")
            self._reason = problem.strerror or str(problem)
            return
        if self._reason:
            self._reason = ""
            self._untold.append(f"{self._place}: the waiting rows are written")

    def _is_there(self) -> bool:
        """Whether the open file is still the one in the folder, where readers of the rows look."""
        try:
            return self._stream is not None and os.path.samestat(self._place.stat(), os.fstat(self._stream.fileno()))
        except OSError:
            return False

    def _hand_on(self, step: int, document: Mapping[str, object]) -> None:
        for sink in self._extra:
            try:
                sink.add(step, dict(_figures(document)))
            except GpudocError:
                # a hang that was noticed at this moment ends the run
                raise
            except Exception as problem:
                self._give_up(sink, problem)

    def _give_up(self, sink: Sink, problem: Exception) -> None:
        self._extra = tuple(other for other in self._extra if other is not sink)
        reason = (str(problem).splitlines() or [""])[0]
        self._untold.append(f"{sink.name} failed and will receive no more figures: {type(problem).__name__}: {reason}")


class NoSinks(Sinks):
    """The sinks of all ranks except the first: they write nothing."""

    def __init__(self) -> None:
        self._extra = ()
        self._untold = []

    def add(self, document: Mapping[str, object]) -> None:
        """Drop it."""

    def write(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing to end."""


def open_extra(names: tuple[str, ...], run: Run, settings: Mapping[str, object]) -> tuple[Sink, ...]:
    """The sinks named by --log-to; GpudocError if the name or its package is unknown."""
    return tuple(_open(name, run, settings) for name in names)


def finite(value: object) -> object:
    """The same data with None for inf and NaN, which JSON cannot represent."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def _open_rows(place: Path) -> FileIO:
    # unbuffered: after an error the content of a buffer would be written twice, or not at all
    return FileIO(place, "ab")


def _open(name: str, run: Run, settings: Mapping[str, object]) -> Sink:
    if name == "tensorboard":
        return _TensorBoard(run.path / "tensorboard")
    if name in ("wandb", "trackio"):
        return _Tracker(name, run, settings)
    raise GpudocError(f"--log-to {name}: unknown", hint=f"--log-to {','.join(NAMES)}")


class _TensorBoard:
    name = "tensorboard"

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise _missing("tensorboard") from None
        self._writer = SummaryWriter(str(folder))

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _Tracker:
    """Weights & Biases, or trackio, which has the same three calls."""

    def __init__(self, name: str, run: Run, settings: Mapping[str, object]) -> None:
        self.name = name
        try:
            self._module = importlib.import_module(name)
        except ImportError:
            raise _missing(name) from None
        self._module.init(project="gpudoc", name=run.path.name, config=dict(settings))

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        self._module.log({"step": step, **figures})

    def close(self) -> None:
        self._module.finish()


def _missing(name: str) -> GpudocError:
    return GpudocError(f"--log-to {name}: the package is not installed", hint=f"pip install {name}")


def _figures(document: Mapping[str, object], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for key, value in document.items():
        if isinstance(value, Mapping):
            found += _figures(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and key != "step":
            found.append((prefix + key, float(value)))
    return found
