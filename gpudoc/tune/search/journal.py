"""The journal of a search: one JSON line per finished trial, on disk before the next one starts.

Format history: gpudoc.tune.journal.v1 (0.1.0) first released form.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from gpudoc.locks import InUseError, Lock, take_lock
from gpudoc.profile import store
from gpudoc.reading import UnreadableError, read_bytes
from gpudoc.tune.trial.messages import End, Trial, TrialPart, TrialRequest
from gpudoc.units import format_count

SCHEMA: Literal["gpudoc.tune.journal.v1"] = "gpudoc.tune.journal.v1"
# a trial takes some hundred bytes
_MOST_BYTES = 64 << 20


class Header(TrialPart):
    """The identity of a journal: it is used only if `key` is the same; `limit_bytes` is the memory limit of its trials.

    `start_s` is the time before the first trial; a resumed run uses the first run's, to make the same decisions.
    """

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    schema_name: Literal["gpudoc.tune.journal.v1"] = Field(default=SCHEMA, alias="schema")
    key: dict[str, str]
    limit_bytes: int | None
    start_s: float = 0.0


@dataclass(slots=True)
class Journal:
    """Finished trials by request; they are kept in memory only without a lock, or once writing failed.

    Only one search at a time writes a journal: `lost` says why this one does not.
    """

    path: Path | None
    trials: list[Trial] = field(default_factory=list)
    lost: str = ""
    num_replayed: int = 0
    start_s: float = 0.0
    _lock: Lock | None = None

    @property
    def replayed(self) -> str:
        """One line about the trials that this search takes over from an earlier one; '' without any."""
        if not self.num_replayed:
            return ""
        return f"continuing with {format_count(self.num_replayed, 'trial')} of an earlier search (--fresh forgets them)"

    def find(self, request: TrialRequest) -> Trial | None:
        """The last finished trial of an equal request, or None."""
        key = request.key()
        return next((trial for trial in reversed(self.trials) if trial.request.key() == key), None)

    def add(self, trial: Trial) -> None:
        """Keep `trial`, on disk before returning; if the disk refuses, `lost` says so and the search goes on."""
        self.trials.append(trial)
        self._append(trial.model_dump_json(exclude_defaults=True))

    def close(self) -> None:
        """Let another search use the journal; later trials are kept in memory only."""
        if self._lock is not None:
            self._lock.close()
        self._lock = None

    def _append(self, line: str) -> None:
        if self._lock is None or self.lost:
            return
        try:
            handle, record = self._lock.handle, line.encode() + b"\n"
            os.lseek(handle, 0, os.SEEK_END)
            while record:
                record = record[os.write(handle, record) :]
            os.fsync(handle)
        except OSError as problem:
            self.lost = problem.strerror or str(problem)


def open_journal(path: Path, header: Header, *, fresh: bool = False) -> Journal:
    """The journal at `path` for `header`; another key, another schema or `fresh` empties it.

    If another search uses it, this search takes over its trials and keeps its own in memory.
    """
    journal = Journal(path, start_s=header.start_s)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        journal._lock = take_lock(path, owner="process")
    except InUseError:
        journal.lost = "another search with the same settings uses it"
    except OSError as problem:
        journal.lost = problem.strerror or str(problem)
    _take_over(journal, header, fresh=fresh)
    return journal


def _take_over(journal: Journal, header: Header, *, fresh: bool) -> None:
    """Take over the trials of an earlier search, or empty the journal for a new one."""
    lock = journal._lock
    data = b"" if fresh or journal.path is None else _read(journal.path, lock)
    whole = data[: data.rfind(b"\n") + 1]
    known, kept = _parse(whole)
    if known is not None and kept is not None and (known.key, known.limit_bytes) == (header.key, header.limit_bytes):
        if kept and kept[-1].end is End.USER_ERROR:
            # the error ended that search, and the user may have fixed it
            kept.pop()
        # disturbed speeds are measured again, and trials that the budget ended may run to their end
        journal.trials.extend(trial for trial in kept if not (trial.is_disturbed or trial.end is End.TIME_UP))
        journal.num_replayed = len(journal.trials)
        journal.start_s = known.start_s
    else:
        whole = b""
    if lock is None:
        return
    try:
        # only the last line can be incomplete, after a kill or a full disk; cut it so that the next one starts a line
        os.ftruncate(lock.handle, len(whole))
    except OSError as problem:
        journal.lost = problem.strerror or str(problem)
    if not whole:
        journal._append(header.model_dump_json(by_alias=True))


def find_journal(name: str, key: Mapping[str, str]) -> Path:
    """The path of a search's journal: one file for each `name` and `key`."""
    digest = hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()[:12]
    return store.folder_to_write().parent / "journals" / f"{name}-{digest}.jsonl"


def recorded_limit(path: Path, key: Mapping[str, str]) -> int | None:
    """The memory limit of the journal at `path` if it has this `key`; None otherwise."""
    known = _read_header(path)
    return known.limit_bytes if known is not None and known.key == key else None


def _read(path: Path, lock: Lock | None) -> bytes:
    if lock is None:
        return _read_unlocked(path)
    try:
        # closing another descriptor would end this process's lock
        return os.pread(lock.handle, os.fstat(lock.handle).st_size, 0)
    except OSError:
        return b""


def _read_unlocked(path: Path) -> bytes:
    try:
        return read_bytes(path, "journal", most_bytes=_MOST_BYTES)
    except UnreadableError:
        return b""


def _read_header(path: Path) -> Header | None:
    return _parse(_read_unlocked(path).partition(b"\n")[0])[0]


def _parse(lines: bytes) -> tuple[Header | None, list[Trial] | None]:
    """The header and the trials of whole lines; None for a part that does not follow this schema."""
    first, *rest = lines.splitlines() or [b""]
    try:
        header = Header.model_validate_json(first, strict=True)
    except ValidationError:
        return None, None
    try:
        trials = [Trial.model_validate_json(line) for line in rest]
    except ValidationError:
        return header, None
    return (header if "schema_name" in header.model_fields_set else None), trials
