"""The memory of a search: one JSON line per finished trial, on disk before the next one starts.

Format history: gpudoc.tune.journal.v1 (0.1.0) first released form.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from gpudoc.tune.trial.messages import End, Part, Request, Trial

SCHEMA: Literal["gpudoc.tune.journal.v1"] = "gpudoc.tune.journal.v1"
_MAX_HEADER = 1 << 16


class Header(Part):
    """What a journal is about: it is used only where `key` is the same; `limit_bytes` is the memory it ran under.

    `start_s` are the seconds before the first trial; a run that goes on counts those of the first, to decide the same.
    """

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    schema_name: Literal["gpudoc.tune.journal.v1"] = Field(default=SCHEMA, alias="schema")
    key: dict[str, str]
    limit_bytes: int | None
    start_s: float = 0.0


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
    known = None if fresh else _read_header(path)
    same = known is not None and (known.key, known.limit_bytes) == (header.key, header.limit_bytes)
    kept = _read_trials(path) if same else None
    if known is not None and kept is not None:
        if kept and kept[-1].end is End.USER_ERROR:
            # it ended that search, and may be corrected by now
            kept.pop()
        # a speed that others disturbed is measured anew
        journal.trials.extend(trial for trial in kept if not trial.is_disturbed)
        journal.num_replayed = len(journal.trials)
        journal.start_s = known.start_s
        return journal
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            path.unlink()
    except OSError as problem:
        journal.lost = problem.strerror or str(problem)
    journal._append(header.model_dump_json(by_alias=True))
    return journal


def recorded_limit(path: Path, key: Mapping[str, str]) -> int | None:
    """The memory limit of the journal at `path` when it is about `key`; None otherwise."""
    known = _read_header(path)
    return known.limit_bytes if known is not None and known.key == key else None


def _read_header(path: Path) -> Header | None:
    try:
        with path.open("rb") as stream:
            found = Header.model_validate_json(stream.readline(_MAX_HEADER), strict=True)
    except (OSError, ValidationError):
        return None
    return found if "schema_name" in found.model_fields_set else None


def _read_trials(path: Path) -> list[Trial] | None:
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
