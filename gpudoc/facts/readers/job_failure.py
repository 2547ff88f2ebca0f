"""The confidence in the rank that failed first, and the advice after several attempts, by rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from gpudoc.facts.readers.job_end import AttemptEnd, find_ends
from gpudoc.facts.readers.job_log import JobLog
from gpudoc.facts.readers.job_repeats import find_common
from gpudoc.frozen import dataclass
from gpudoc.shell import is_name
from gpudoc.units import format_ranks

# of several attempts, the last one with at least this confidence counts
_TELLING = 0.6
_UNKNOWN = "it is not known which rank failed first"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankKind:
    """How surely, and by what, an end of this kind names the first rank, and its cause if no line proves one."""

    id: str
    confidence: float
    says: str
    by: str
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOrder:
    """The evidence for the order of several ranks, and the trust in it, from 0 (none) to 1 (full)."""

    id: str
    factor: float
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """What attempts of a job have in common, and what to do: 'drain' a node, 'stop', or 'restart'."""

    id: str
    says: str
    do: str
    next: Literal["drain", "stop", "restart"]
    run: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRows:
    """The rows of rank_kinds.yaml by id."""

    kinds: Mapping[str, RankKind]
    orders: Mapping[str, RankOrder]
    repeats: Mapping[str, Repeat]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailure:
    """How a job of many ranks ended: `says` describes the attempt numbered `attempt`, `by` is the evidence for it.

    `confidence` is 0 if nothing tells which rank was first. `again` is the common feature of several attempts; `next`
    is 'restart', 'drain' for a node, or 'stop', and '' for a single attempt; `do` and `run` say how.
    """

    attempts: tuple[AttemptEnd, ...]
    num_files: int
    attempt: int
    says: str
    confidence: float
    by: str
    again: str = ""
    next: str = ""
    do: str = ""
    run: str = ""

    @property
    def judged(self) -> AttemptEnd:
        """The attempt that `says` is about."""
        return next(end for end in self.attempts if end.number == self.attempt)


def judge_job(job: JobLog, rows: RankRows) -> JobFailure | None:
    """Which rank failed first in each attempt, and what the attempts have in common; None if no attempt failed."""
    ends = find_ends(job)
    if not ends:
        return None
    end = next((one for one in reversed(ends) if _sureness(one, rows) >= _TELLING), ends[-1])
    kind, order, sure = rows.kinds[end.kind], rows.orders[end.order], _sureness(end, rows)
    reasons = (kind.by, order.by.format(others=format_ranks(end.others))) if sure else ()
    failure = JobFailure(
        attempts=ends,
        num_files=job.num_files,
        attempt=end.number,
        says=kind.says.format(first=_first(end), sign=end.says, host=end.host_name) if sure else _UNKNOWN,
        confidence=round(sure, 2),
        by="; ".join(filter(None, reasons)),
    )
    common = find_common(ends)
    return failure if common is None else _with_common(failure, rows.repeats[common.repeat], common.words)


def _sureness(end: AttemptEnd, rows: RankRows) -> float:
    """The confidence in the first rank; 0 if nothing tells which rank it was."""
    known = end.is_known or end.kind == "stop"
    return rows.kinds[end.kind].confidence * rows.orders[end.order].factor if known else 0.0


def _with_common(failure: JobFailure, row: Repeat, words: Mapping[str, str]) -> JobFailure:
    run = row.run.format(**words) if is_name(words["host"]) else ""
    return replace(failure, again=row.says.format(**words), next=row.next, do=row.do.format(**words), run=run)


def _first(end: AttemptEnd) -> str:
    """'rank 17 on node03', as far as it is known."""
    rank = "" if end.rank is None else f"rank {end.rank}"
    return " on ".join(filter(None, (rank, end.host_name))) or "a rank that no line names"
