"""The memory of a search: one JSON line per finished trial, on disk before the next one starts.

Format history: gpudoc.tune.journal.v1 (0.1.0) first released form.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from gpudoc.tune.trial.messages import End, Request, Trial

SCHEMA = "gpudoc.tune.journal.v1"
_MAX_HEADER = 1 << 16


@dataclass(frozen=True, slots=True)
class Header:
    """What a journal is about: it is used only where `key` is the same; `limit_bytes` is the memory it ran under.

    `start_s` are the seconds before the first trial; a run that goes on counts those of the first, to decide the same.
    """

    key: Mapping[str, str]
    limit_bytes: int | None
    start_s: float = 0.0

    def line(self) -> str:
        """The first line of the file."""
        known = {"schema": SCHEMA, "key": dict(self.key), "limit_bytes": self.limit_bytes, "start_s": self.start_s}
        return json.dumps(known, sort_keys=True)


@dataclass(slots=True)
class Journal:
    """Finished trials by request; without a path, or once writing failed, they are kept in memory only."""

    path: Path | None
    trials: list[Trial] = field(default_factory=list)
    lost: str = ""
    num_replayed: int = 0
    start_s: float = 0.0

    def find(self, request: Request) -> Trial | None:
        """The finished trial of an equal request, the last of several, or None."""
        key = request.key()
        return next((trial for trial in reversed(self.trials) if trial.request.key() == key), None)

    def add(self, trial: Trial) -> None:
        """Keep `trial`, on disk before returning; a disk that refuses is said in `lost`, the search goes on."""
        self.trials.append(trial)
        self._append(trial.model_dump_json(exclude_defaults=True))

    def _append(self, line: str) -> None:
        if self.path is None or self.lost:
            return
        try:
            with self.path.open("ab") as stream:
                stream.write(line.encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as problem:
            self.lost = problem.strerror or str(problem)


def open_journal(path: Path, header: Header, *, fresh: bool = False) -> Journal:
    """The journal at `path` for `header`; another key, another schema or `fresh` starts it anew."""
    journal = Journal(path, start_s=header.start_s)
    kept = None if fresh else _read(path, header)
    if kept is not None:
        if kept and kept[-1].end is End.USER_ERROR:
            # it ended that search, and may be corrected by now
            kept.pop()
        journal.trials.extend(kept)
        journal.num_replayed = len(kept)
        started = (_first_line(path) or {}).get("start_s")
        journal.start_s = float(started) if isinstance(started, float | int) else 0.0
        return journal
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            path.unlink()
    except OSError as problem:
        journal.lost = problem.strerror or str(problem)
    journal._append(header.line())
    return journal


def recorded_limit(path: Path, key: Mapping[str, str]) -> int | None:
    """The memory limit of the journal at `path` when it is about `key`; None otherwise."""
    first = _first_line(path)
    if first is None or first.get("key") != dict(key):
        return None
    limit = first.get("limit_bytes")
    return limit if isinstance(limit, int) else None


def _first_line(path: Path) -> Mapping[str, object] | None:
    try:
        with path.open(encoding="utf-8") as stream:
            first = json.loads(stream.readline(_MAX_HEADER))
    except (OSError, ValueError):
        return None
    return first if isinstance(first, dict) and first.get("schema") == SCHEMA else None


def _read(path: Path, header: Header) -> list[Trial] | None:
    first = _first_line(path)
    if first is None or first.get("key") != dict(header.key) or first.get("limit_bytes") != header.limit_bytes:
        return None
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        # only the last line can be torn, by a kill or a full disk; cut it so that the next record starts on its own
        with path.open("r+b") as stream:
            stream.truncate(len(whole))
    trials = []
    for line in whole.splitlines()[1:]:
        try:
            trials.append(Trial.model_validate_json(line))
        except ValidationError:
            return None
    return trials
