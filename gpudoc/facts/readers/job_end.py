"""How each attempt of a job ended, frozen: the rank that failed first, how that is known, what the others did."""

from __future__ import annotations

from dataclasses import field

from gpudoc.facts.readers.job_log import Attempt, EndLine, JobLog, RankLog
from gpudoc.facts.readers.job_order import EndKind, EndOrder, Lead, Leads, find_leads
from gpudoc.facts.readers.model import Line
from gpudoc.frozen import dataclass
from gpudoc.patterns import Pattern

# at most this many ranks are named if several may have been first
_MOST_NAMED = 64
_CRASHED = -15, -9, -6
_NUMBERS = Pattern(r"0x[0-9a-fA-F]{1,16}|\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Followers:
    """Ranks with the same reaction to the first failure: the row of rank_signs.yaml, its words, the place of a line."""

    sign: str
    says: str
    ranks: tuple[int, ...]
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """The end of one attempt. `rank` is None and `host_name` is '' if nothing tells which rank was first.

    `kind` and `order` are ids of rank_kinds.yaml; `others` are ranks with a sign of the same kind: after the first one,
    or, if the order is 'none', as likely to be first. `observed_first` is the rank that torchrun's summary names.
    `after_s` is the time from the first line to the failure, `step` is the last step of the first rank. `silent` are
    the ranks that never wrote a line.
    """

    host_name: str = ""
    number: int
    kind: EndKind
    order: EndOrder
    num_ranks: int
    num_hosts: int = 0
    rank: int | None = None
    says: str = ""
    text: str = ""
    origin: str = ""
    others: tuple[int, ...] = ()
    alike: bool = False
    followers: tuple[Followers, ...] = ()
    silent: tuple[int, ...] = ()
    observed_first: int | None = None
    step: int | None = None
    after_s: float | None = None
    hosts: tuple[str, ...] = field(default=(), metadata={"key": None}, compare=False, repr=False)
    lead: EndLine | None = field(default=None, metadata={"key": None}, compare=False, repr=False)

    @property
    def is_known(self) -> bool:
        """Whether a rank, or a host, is known to have failed first."""
        return (self.rank is not None or bool(self.host_name)) and self.order != "none"

    @property
    def shape(self) -> str:
        """The line of the first failure without its numbers, to compare attempts."""
        return _NUMBERS.sub("#", self.text)


def find_ends(job: JobLog) -> tuple[AttemptEnd, ...]:
    """The end of each attempt that failed, in order."""
    found = ((attempt, find_leads(attempt)) for attempt in job.attempts)
    return tuple(
        _end(attempt, leads) for attempt, leads in found if leads is not None and _is_of_several(attempt, leads)
    )


def _is_of_several(attempt: Attempt, leads: Leads) -> bool:
    """Whether the first rank is known, or several ranks show an end."""
    return bool(leads.leads) or sum(bool(log.signs) for log in attempt.ranks.values()) > 1


def _end(attempt: Attempt, leads: Leads) -> AttemptEnd:
    first = leads.leads[0] if leads.leads else Lead(rank=None, host="", sign=None)
    known = leads.order != "none"
    ranks = [lead.rank for lead in leads.leads if lead.rank is not None]
    chosen = first.rank if known else None
    log = attempt.ranks.get(-1 if chosen is None else chosen)
    sign = first.sign
    hosts = tuple(dict.fromkeys(log.host for log in attempt.ranks.values() if log.host))
    return AttemptEnd(
        number=attempt.number,
        kind=_kind(leads.kind, sign),
        order=leads.order,
        num_ranks=attempt.num_ranks,
        num_hosts=len(hosts),
        hosts=hosts,
        rank=chosen,
        host_name=first.host if known else "",
        says=sign.row.says if sign is not None else "",
        text=sign.text.strip() if sign is not None else "",
        origin=sign.origin if sign is not None else "",
        others=tuple(rank for rank in ranks if rank != chosen)[:_MOST_NAMED],
        alike=leads.alike,
        followers=_followers(attempt, chosen),
        silent=_silent(attempt),
        observed_first=_observed(attempt),
        step=log.last_step if log is not None else _step(attempt),
        after_s=_duration(attempt, sign),
        lead=sign,
    )


def _kind(kind: EndKind, sign: EndLine | None) -> EndKind:
    """The kind; if there is only an exit code, 'crashed' if only the process itself can cause it, else 'killed'."""
    if kind == "own" and sign is not None and sign.row.role == "exit" and sign.code not in _CRASHED:
        return "crashed"
    return "killed" if kind == "own" and sign is not None and sign.row.role == "exit" else kind


def _silent(attempt: Attempt) -> tuple[int, ...]:
    """The ranks that never wrote a line; empty for a piece of a log, in which most ranks are missing."""
    silent = [rank for rank in range(attempt.num_ranks) if not _wrote(attempt.ranks.get(rank))]
    return tuple(silent[:_MOST_NAMED]) if 2 * len(silent) < attempt.num_ranks else ()


def _wrote(log: RankLog | None) -> bool:
    return log is not None and (log.wrote or bool(log.signs))


def _followers(attempt: Attempt, first: int | None) -> tuple[Followers, ...]:
    """The other ranks, grouped by the first reaction of each, the largest group first."""
    groups: dict[str, list[EndLine]] = {}
    for rank, log in sorted(attempt.ranks.items()):
        sign = next((s for s in log.signs if s.row.role == "followed"), None)
        if rank != first and sign is not None:
            groups.setdefault(sign.row.id, []).append(sign)
        elif rank != first and any(s.code == -15 for s in log.signs):
            groups.setdefault("asked-to-end", []).append(next(s for s in log.signs if s.code == -15))
    ranked = sorted(groups.values(), key=len, reverse=True)
    named = "the first rank" if first is None else f"rank {first}"
    return tuple(
        Followers(
            sign=signs[0].row.id,
            says=_said(signs[0]).format(first=named),
            ranks=tuple(s.rank for s in signs if s.rank is not None),
            origin=signs[0].origin,
        )
        for signs in ranked
    )


def _said(sign: EndLine) -> str:
    return sign.row.says or "had to end after {first} had failed"


def _observed(attempt: Attempt) -> int | None:
    return next((rank for rank, log in attempt.ranks.items() if any(sign.first for sign in log.signs)), None)


def _step(attempt: Attempt) -> int | None:
    """The step that most ranks reported last."""
    steps = [log.last_step for log in attempt.ranks.values() if log.last_step is not None]
    return max(set(steps), key=steps.count) if steps else None


def _duration(attempt: Attempt, sign: EndLine | None) -> float | None:
    """Seconds from the first line of a rank to its failure, or to the last line of any rank, each by its own clock."""
    log = attempt.ranks.get(-1 if sign is None or sign.rank is None else sign.rank)
    if sign is not None and sign.time is not None and log is not None and log.began is not None:
        return max(0.0, sign.time - log.began)
    spans = [log.ended - log.began for log in attempt.ranks.values() if log.began is not None and log.ended is not None]
    return max(spans, default=None)


def lines_of(job: JobLog, end: AttemptEnd) -> tuple[Line, ...]:
    """The lines of the first rank around its failure, and the lines of launchers and the system about it."""
    from gpudoc.facts.readers.job_reader import lines_around

    attempt = next(one for one in job.attempts if one.number == end.number)
    log = attempt.ranks.get(-1 if end.rank is None else end.rank)
    around: tuple[Line, ...] = ()
    if end.lead is not None and end.lead.row.role in ("own", "weak"):
        around = lines_around(end.lead, attempt, job)
    told = [sign for sign in attempt.told if sign.row.role in ("own", "node", "stop")]
    told += [sign for sign in log.signs if sign.row.role in ("exit", "named")] if log is not None else []
    seen = {(line.source, line.number) for line in around}
    rest = [sign for sign in told if (sign.file.name, sign.line) not in seen]
    return (*around, *(Line(sign.line, sign.text, sign.file.name) for sign in rest))
