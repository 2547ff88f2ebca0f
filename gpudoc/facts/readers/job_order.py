"""Which ranks of an attempt may have failed first, and in which order: by the kind of their signs, then by time.

A rank's own failure always counts before a consequence of another rank's end, whatever a clock or a launcher says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from gpudoc.facts.readers.job_log import Attempt, EndLine, RankLog
from gpudoc.frozen import dataclass
from gpudoc.patterns import Pattern

EndKind = Literal[
    "own",
    "unsigned",
    "named",
    "node",
    "killed",
    "exited",
    "crashed",
    "behind",
    "missing",
    "silent",
    "stop",
    "weak",
    "seen_first",
]
EndOrder = Literal["alone", "clock", "own_clocks", "lines", "launcher", "steps", "none"]

_TERM, _KILL, _ABORT = -15, -9, -6
_CRASHES = (-11, -7, -8, -4)
_OOM_ROW, _TIMEOUTS = "slurm-oom", ("watchdog", "gloo-timeout")
# an error this close after a consequence in one log is part of it, unless more time than this passed between them
_NEAR_LINES, _NEAR_S = 400, 1_800.0
# two times must differ by this much to show an order: a line without a time has that of an earlier line
_TELLING_S = 0.5
_NUMBERS = Pattern(r"0x[0-9a-fA-F]{1,16}|\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """A rank that may have failed first: None if only its host, or nothing, is known; `at` is by a common clock."""

    rank: int | None
    host: str
    sign: EndLine | None
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leads:
    """The ranks with the strongest kind of sign, likeliest first, and what shows their order.

    `alike`: most ranks of the job show the same sign, so the cause is common to all.
    """

    kind: EndKind
    order: EndOrder
    leads: tuple[Lead, ...]
    alike: bool = False


def find_leads(attempt: Attempt) -> Leads | None:
    """The ranks that may have failed first; None if nothing failed."""
    ways: tuple[tuple[EndKind, Callable[[Attempt], list[Lead]]], ...] = (
        ("own", _own),
        ("unsigned", _unsigned),
        ("named", _named),
        ("node", _nodes),
        ("stop", lambda one: [] if _waiting(one) else _stops(one)),
        ("killed", _killed),
        ("exited", _exited),
        ("behind", _behind),
        ("missing", _missing),
        ("stop", _stops),
        ("silent", _silent),
        ("weak", _weak),
        ("seen_first", _seen_first),
    )
    for kind, way in ways:
        found = way(attempt)
        if found and kind in ("exited", "silent") and (errors := _errors_of(attempt, found)):
            return _ordered("own", errors, attempt)
        if found:
            return _ordered(kind, found, attempt)
    if any(sign.row.role != "begin" for sign in (*attempt.told, *_all_signs(attempt))):
        return Leads(kind="silent", order="none", leads=())
    return None


def _errors_of(attempt: Attempt, found: Sequence[Lead]) -> list[Lead]:
    """Errors of these ranks that seemed to be survived: buffered output is written only at the end."""
    ranks = {lead.rank for lead in found}
    return [_lead(log, log.survived[-1]) for rank, log in attempt.ranks.items() if rank in ranks and log.survived]


def _all_signs(attempt: Attempt) -> Iterable[EndLine]:
    return (sign for log in attempt.ranks.values() for sign in log.signs)


def _of(log: RankLog, role: str) -> list[EndLine]:
    return [sign for sign in log.signs if sign.row.role == role]


def _codes(log: RankLog) -> list[EndLine]:
    return [sign for sign in _of(log, "exit") if sign.code is not None]


def _own_sign(log: RankLog, roles: Sequence[str] = ("own",)) -> EndLine | None:
    """The rank's first own error that does not come after a consequence of another rank's error."""
    for sign in log.signs:
        if sign.row.role in roles and not any(_is_behind(sign, other) for other in _of(log, "followed")):
            return sign
    return None


def _is_behind(sign: EndLine, other: EndLine) -> bool:
    if sign.file != other.file or not 0 < sign.line - other.line <= _NEAR_LINES:
        return False
    return sign.time is None or other.time is None or sign.time - other.time <= _NEAR_S


def _own(attempt: Attempt) -> list[Lead]:
    found = []
    starved = any(sign.row.id == "host-oom" for sign in attempt.told)
    for log in attempt.ranks.values():
        ends = _codes(log)
        crash = next((sign for sign in ends if sign.code in _CRASHES or sign.row.id == _OOM_ROW), None)
        if crash is None and starved and not _of(log, "followed"):
            crash = next((sign for sign in ends if sign.code == _KILL), None)
        sign = _own_sign(log) or crash
        if sign is not None:
            found.append(_lead(log, sign))
    return found


def _unsigned(attempt: Attempt) -> list[Lead]:
    """Errors in lines that name no rank."""
    signs = [sign for sign in attempt.told if sign.row.role == "own"]
    seen = _seen_first(attempt)
    first = seen[0] if len(seen) == 1 else Lead(rank=None, host="", sign=None)
    return [Lead(rank=first.rank, host=first.host, sign=signs[0])] if signs else []


def _named(attempt: Attempt) -> list[Lead]:
    return [_lead(log, signs[0]) for log in attempt.ranks.values() if (signs := _of(log, "named"))]


def _nodes(attempt: Attempt) -> list[Lead]:
    lost = [sign for sign in attempt.told if sign.row.role == "node" and sign.host]
    return [Lead(rank=_first_of(attempt, sign.host), host=sign.host, sign=sign) for sign in lost[:1]]


def _first_of(attempt: Attempt, host: str) -> int | None:
    """The only rank of a host, None if it has several or no known rank."""
    there = [log.rank for log in attempt.ranks.values() if log.host == host]
    return there[0] if len(there) == 1 else None


def _stops(attempt: Attempt) -> list[Lead]:
    signs = [sign for sign in (*attempt.told, *_all_signs(attempt)) if sign.row.role == "stop"]
    return [Lead(rank=None, host="", sign=signs[0])] if signs else []


def _killed(attempt: Attempt) -> list[Lead]:
    return _few(attempt, lambda log: next((sign for sign in _codes(log) if sign.code == _KILL), None))


def _exited(attempt: Attempt) -> list[Lead]:
    if not any(_of(log, "followed") for log in attempt.ranks.values()):
        return []
    # a line about many ranks does not single out one
    told = Counter((sign.file.name, sign.line) for log in attempt.ranks.values() for sign in _codes(log))
    return _few(
        attempt,
        lambda log: next((s for s in _codes(log) if (s.code or 0) > 0 and told[s.file.name, s.line] == 1), None),
    )


def _few(attempt: Attempt, pick: Callable[[RankLog], EndLine | None]) -> list[Lead]:
    """The ranks that ended this way and show no consequence of others' ends; none if they are most of the job."""
    found = [_lead(log, sign) for log in attempt.ranks.values() if not _of(log, "followed") and (sign := pick(log))]
    return found if len(found) <= max(1, attempt.num_ranks // 2) else []


def _waiting(attempt: Attempt) -> set[int]:
    """The ranks whose collective timed out."""
    return {rank for rank, log in attempt.ranks.items() if any(s.row.id in _TIMEOUTS for s in _of(log, "followed"))}


def _behind(attempt: Attempt) -> list[Lead]:
    """The ranks that reached fewer collectives than the others, according to their watchdogs."""
    known = {rank: log.enqueued for rank, log in attempt.ranks.items() if log.enqueued is not None}
    most = max(known.values(), default=0)
    late = [rank for rank, number in known.items() if number < most]
    # if too few ranks report a number, the silence of the others says more
    if not late or len(late) > len(known) // 2 or len(known) < attempt.num_ranks // 2:
        return []
    least = min(known[rank] for rank in late)
    return [_lead(attempt.ranks[rank], _last(attempt.ranks[rank])) for rank in late if known[rank] == least]


def _missing(attempt: Attempt) -> list[Lead]:
    """The ranks that did not time out in the collective in which the others did."""
    waiting = _waiting(attempt)
    return _rest(attempt, waiting) if waiting else []


def _silent(attempt: Attempt) -> list[Lead]:
    """The ranks that are silent while the others report a lost rank."""
    told = {rank for rank, log in attempt.ranks.items() if _of(log, "followed")}
    # a rank that was asked to end was still there
    told |= {rank for rank, log in attempt.ranks.items() if any(sign.code == _TERM for sign in _codes(log))}
    return _rest(attempt, told) if told else []


def _rest(attempt: Attempt, others: set[int]) -> list[Lead]:
    rest = [rank for rank in range(attempt.num_ranks) if rank not in others]
    if not rest or len(rest) > max(1, attempt.num_ranks // 4) or 2 * len(others) < attempt.num_ranks:
        return []
    empty = RankLog(rank=0, steps={})
    logs = [attempt.ranks.get(rank, empty) for rank in rest]
    return [Lead(rank=rank, host=log.host, sign=None) for rank, log in zip(rest, logs, strict=True)]


def _weak(attempt: Attempt) -> list[Lead]:
    found = ((log, _own_sign(log, ("weak",))) for log in attempt.ranks.values())
    first = [_lead(log, sign) for log, sign in found if sign is not None]
    if first:
        return first
    late = (
        (log, next((s for s in log.signs if s.row.role in ("own", "weak")), None)) for log in attempt.ranks.values()
    )
    return [_lead(log, sign) for log, sign in late if sign is not None]


def _seen_first(attempt: Attempt) -> list[Lead]:
    found = []
    for log in attempt.ranks.values():
        sign = next((s for s in _codes(log) if s.first and s.code != _TERM), None)
        if sign is not None:
            found.append(_lead(log, sign))
    return found


def _last(log: RankLog) -> EndLine | None:
    return log.signs[0] if log.signs else None


def _lead(log: RankLog, sign: EndLine | None) -> Lead:
    return Lead(rank=log.rank, host=log.host or (sign.host if sign is not None else ""), sign=sign)


def _ordered(kind: EndKind, found: Sequence[Lead], attempt: Attempt) -> Leads:
    """The leads in the order in which they failed, as far as it is known."""
    if len(found) == 1:
        return Leads(kind=kind, order="alone", leads=tuple(found))
    alike = 2 * len(found) > attempt.num_ranks and len({_shape(lead) for lead in found}) == 1
    shifts = clock_shifts(attempt)
    timed = [_timed(lead, shifts) for lead in found]
    if all(lead.at is not None for lead in timed):
        first, second = sorted(lead.at for lead in timed if lead.at is not None)[:2]
        if second - first >= _TELLING_S:
            order: EndOrder = "clock" if all(lead.rank in shifts for lead in timed) else "own_clocks"
            return Leads(kind=kind, order=order, leads=tuple(sorted(timed, key=lambda o: o.at or 0.0)), alike=alike)
    for order, key in _KEYS:
        known = [(value, lead) for lead in timed if (value := key(lead, attempt)) is not None]
        least = min((value for value, _ in known), default=None)
        if len(known) == len(timed) and sum(value == least for value, _ in known) == 1:
            ranked = tuple(lead for _, lead in sorted(known, key=lambda pair: pair[0]))
            if order != "lines" or len({lead.sign.file for lead in timed if lead.sign is not None}) == 1:
                return Leads(kind=kind, order=order, leads=ranked, alike=alike)
    return Leads(kind=kind, order="none", leads=tuple(timed), alike=alike)


def _line(lead: Lead, _: Attempt) -> float | None:
    return lead.sign.line if lead.sign is not None else None


def _seen(lead: Lead, attempt: Attempt) -> float | None:
    log = attempt.ranks.get(-1 if lead.rank is None else lead.rank)
    return 1.0 - any(sign.first for sign in log.signs) if log is not None else None


def _step(lead: Lead, attempt: Attempt) -> float | None:
    log = attempt.ranks.get(-1 if lead.rank is None else lead.rank)
    return log.last_step if log is not None else None


_KEYS: tuple[tuple[EndOrder, Callable[[Lead, Attempt], float | None]], ...] = (
    ("lines", _line),
    ("launcher", _seen),
    ("steps", _step),
)


def _shape(lead: Lead) -> str:
    return _NUMBERS.sub("#", lead.sign.text) if lead.sign is not None else ""


def _timed(lead: Lead, shifts: Mapping[int, float]) -> Lead:
    time = lead.sign.time if lead.sign is not None else None
    at = None if time is None else time - shifts.get(-1 if lead.rank is None else lead.rank, 0.0)
    return Lead(rank=lead.rank, host=lead.host, sign=lead.sign, at=at)


def clock_shifts(attempt: Attempt) -> Mapping[int, float]:
    """Seconds by which each rank's clock is ahead, judged by steps that the ranks reach together."""
    by_step: dict[int, list[float]] = {}
    for log in attempt.ranks.values():
        for step, time in log.steps.items():
            by_step.setdefault(step, []).append(time)
    from statistics import median

    usual = {step: median(times) for step, times in by_step.items() if len(times) > 1}
    shifts = {}
    for rank, log in attempt.ranks.items():
        apart = [time - usual[step] for step, time in log.steps.items() if step in usual]
        if apart:
            shifts[rank] = median(apart)
    return shifts
