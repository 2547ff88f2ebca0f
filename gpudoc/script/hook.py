"""The parent's end of the hook: the variables that load it into a script's processes, and their reports."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import ValidationError

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.script.messages import (
    EVENTS,
    Aside,
    DataSeen,
    ErrorSeen,
    Event,
    HookOrder,
    LinesSeen,
    LoaderSeen,
    ScriptEnd,
    ScriptStart,
    StateRecord,
    StepsMeasured,
    StepsSeen,
    Total,
)

FOLDER = "GPUDOC_SCRIPT_FOLDER"
INSIDE = Path(__file__).parent / "inside"


@dataclass(frozen=True, slots=True)
class ProcessSeen:
    """The reports of one process: every loader and every event of steps, in order; None if absent."""

    name: str
    start: ScriptStart | None = None
    loaders: tuple[LoaderSeen, ...] = ()
    data: tuple[DataSeen, ...] = ()
    steps: tuple[StepsSeen, ...] = ()
    error: ErrorSeen | None = None
    asides: tuple[str, ...] = ()
    measured: bool = False
    record: StateRecord | None = None
    lines: LinesSeen | None = None
    end: ScriptEnd | None = None

    @property
    def total(self) -> Total:
        """All steps so far."""
        return self.steps[-1].total if self.steps else Total()

    @property
    def has_diverged(self) -> bool:
        """Whether its weights were NaN or infinite when last checked."""
        return bool(self.steps) and self.steps[-1].finite is False

    @property
    def rank(self) -> int | None:
        """The rank from torch.distributed, else from the launcher's variables; None if there is none."""
        told = self.steps[-1].rank if self.steps else None
        return told if told is not None else (self.start.rank if self.start else None)

    @property
    def trains(self) -> bool:
        """Whether an optimizer stepped in this process."""
        return bool(self.steps)

    def loader(self, number: int | None) -> LoaderSeen | None:
        """The loader with this number; None if there is none."""
        return next((loader for loader in self.loaders if loader.number == number), None)

    def origin(self, number: int | None) -> LoaderSeen | None:
        """The loader in the user's own code from which this number was built, through any number of frameworks."""
        found = self.loader(number)
        while found is not None and found.remade_from is not None:
            found = self.loader(found.remade_from)
        return found

    def feeding(self) -> LoaderSeen | None:
        """The loader that fed most steps; None if there is none."""
        counts: dict[int, int] = {}
        for event in self.steps:
            if event.loader is not None:
                counts[event.loader] = counts.get(event.loader, 0) + event.count
        return self.loader(max(counts, key=lambda number: counts[number])) if counts else None


def environment(folder: Path, order: HookOrder, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables for a watched command; writes the order into `folder`, which must be empty and private."""
    (folder / "order.json").write_text(order.model_dump_json())
    found = environment.get("PYTHONPATH", "")
    path = os.pathsep.join([str(INSIDE), found]) if found else str(INSIDE)
    return {**environment, "PYTHONPATH": path, FOLDER: str(folder.resolve())}


@dataclass(slots=True)
class _File:
    seen: ProcessSeen
    offset: int = 0


@dataclass(slots=True)
class EventReader:
    """Reads the reports of one launch's processes in `folder`; each call only reads new lines."""

    folder: Path
    keep_steps: bool = True
    _files: dict[str, _File] = field(default_factory=dict)

    def read(self) -> tuple[ProcessSeen, ...]:
        """The reports so far, one ProcessSeen per process, lowest rank first; GpudocError for an invalid line."""
        for path in self.folder.glob("*.jsonl"):
            known = self._files.setdefault(path.name, _File(ProcessSeen(path.stem)))
            with path.open("rb") as file:
                file.seek(known.offset)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            known.offset += len(whole)
            for line in whole.splitlines():
                known.seen = self._after(known.seen, _decoded(line, path))
        ordered = (self._files[name].seen for name in sorted(self._files))
        return tuple(sorted(ordered, key=lambda seen: seen.rank or 0))

    def _after(self, seen: ProcessSeen, event: Event) -> ProcessSeen:
        match event:
            case ScriptStart():
                return replace(seen, start=event)
            case LoaderSeen():
                return replace(seen, loaders=(*seen.loaders, event))
            case DataSeen():
                return replace(seen, data=(*seen.data, event))
            case StepsSeen():
                # events of a run that lasts days are not all kept
                return replace(seen, steps=(*(seen.steps if self.keep_steps else ()), event))
            case ErrorSeen():
                return replace(seen, error=event)
            case Aside():
                return replace(seen, asides=(*seen.asides, event.why))
            case StateRecord():
                return replace(seen, record=event)
            case LinesSeen():
                return replace(seen, lines=event)
            case StepsMeasured():
                return replace(seen, measured=True)
            case ScriptEnd():
                return replace(seen, end=event)


def read(folder: Path) -> tuple[ProcessSeen, ...]:
    """Read the reports of one launch's processes once."""
    return EventReader(folder).read()


def _decoded(line: bytes, path: Path) -> Event:
    try:
        return EVENTS.validate_json(line)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        text = line[:200].decode(errors="replace")
        raise GpudocError(
            f"{path.name} holds a line that is not an event ({place}: {first['msg']}): {text!r}",
            hint="this is a fault of gpudoc: open an issue with this line",
            exit_code=ExitCode.FAULT,
        ) from None
