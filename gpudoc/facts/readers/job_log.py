"""A job of many ranks, read from its logs: each rank's host, its progress, and the signs of its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from gpudoc.facts.readers.job_files import JobFile
from gpudoc.frozen import dataclass

Role = Literal["own", "weak", "followed", "named", "exit", "node", "stop", "begin", "member"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSign:
    """A row of rank_signs.yaml: it matches a line that contains one of `words` and, if given, `pattern`."""

    id: str
    role: Role
    words: Sequence[str]
    source: str
    examples: Sequence[str]
    pattern: str = ""
    says: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLine:
    """One line that shows an end: `rank` is the rank that wrote the line or that the line names.

    `offset` is where the line begins in its file; `time` is in seconds by the rank's clock, from this line or
    the last earlier line with a time. `code` is an exit code, negative for a signal; `first`: torchrun saw it first.
    """

    row: RankSign
    rank: int | None
    host: str
    text: str
    file: JobFile
    line: int
    offset: int
    time: float | None = None
    code: int | None = None
    first: bool = False

    @property
    def origin(self) -> str:
        """'rank_17.log line 993'."""
        return f"{self.file.name} line {self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLog:
    """One rank in one attempt: its signs in the order of its lines, and the last step that it reported.

    `steps` has the time of the first and last steps, by the rank's own clock; `enqueued` is the newest collective that
    it asked for, as NCCL's watchdog says. `survived` are its errors that are followed by further
    steps, or by a buffer of earlier steps that was written later.
    """

    rank: int
    host: str = ""
    signs: tuple[EndLine, ...] = ()
    survived: tuple[EndLine, ...] = ()
    last_step: int | None = None
    steps: Mapping[int, float]
    enqueued: int | None = None
    began: float | None = None
    ended: float | None = None
    wrote: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One start of the job: its ranks, and the lines of launchers and the system; `num_ranks` includes silent ranks."""

    number: int
    ranks: Mapping[int, RankLog]
    told: tuple[EndLine, ...]
    num_ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLog:
    """The content of one job's files, attempt by attempt; `says_ranks`: a word in a line or a path names a rank."""

    attempts: tuple[Attempt, ...]
    num_files: int
    says_ranks: bool
    is_shared: bool
