"""A job of many ranks as its logs tell of it: of each rank its host, how far it came, and the signs that it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from gpudoc.facts.readers.job_files import JobFile
from gpudoc.frozen import dataclass

Role = Literal["own", "weak", "followed", "named", "exit", "node", "stop", "begin", "member"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSign:
    """A row of rank_signs.yaml: one of `words` stands in a line, and `pattern` is found in it where there is one."""

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
    """One line that shows an end: `rank` is the one that it is about, which wrote it or is named by it.

    `offset` is where the line begins in its file; `time` is in seconds by the clock of the rank, of this line or the
    last one before it that had a time. `code` is an exit code, negative for a signal; `first`: torchrun saw it first.
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
    it asked for, as NCCL's watchdog says. `survived` are its errors behind which it came to further steps, or
    behind which a buffer of earlier steps was written.
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
    """One start of the job: its ranks, and what launchers and the system said; `num_ranks` counts also silent ones."""

    number: int
    ranks: Mapping[int, RankLog]
    told: tuple[EndLine, ...]
    num_ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLog:
    """What the files of one job say, attempt by attempt; `says_ranks`: a line or a path names a rank by that word."""

    attempts: tuple[Attempt, ...]
    num_files: int
    says_ranks: bool
    is_shared: bool
