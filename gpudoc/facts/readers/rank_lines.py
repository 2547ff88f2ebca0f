"""Reads from one line of a job's log which rank wrote it, on which host, when, and at which step."""

from __future__ import annotations

from gpudoc.facts.readers.model import unprefixed
from gpudoc.frozen import dataclass
from gpudoc.patterns import Pattern

_RANK = Pattern(r"\[(?:rank|Rank|RANK)[:= ]{0,2}(\d{1,5})\]|\brank=(\d{1,5})")
# how torchrun names a stream: by the worker's role and its place on the node
_LOCAL = Pattern(r"\[(?:default|trainer|worker)[:= ]{0,2}(\d{1,5})\]")
# srun -l, mpirun --tag-output, a container of a service
_TASK = Pattern(r"\[\d{1,3},(\d{1,5})\]<|(?<![\d\w.])(\d{1,5})(?![\w\]])|^[\w.-]{1,60}-(\d{1,5})$")
# pdsh and DeepSpeed write the host before the line
_HOST = Pattern(r"([A-Za-z][\w.-]{0,60}\d[\w.-]{0,40}): (?=\[|\d{1,5}: )")
_NCCL = Pattern(r"([\w.-]{1,80}):\d{1,9}:\d{1,9} \[(\d{1,3})\] NCCL ")
_DATED = Pattern(r"(?:19|20)\d\d[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_GLOG = Pattern(r"\b[EIWF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,6})")
_SYSLOG = Pattern(r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)\b")
_CLOCK = Pattern(r"(?<![\d:.])(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?(?![\d:])")
_STEP = Pattern(r"(?i)\b(?:global_?)?(?:steps?|iter(?:ation)?s?|batch|update)\b[\"'\s:=\[#/-]{1,4}(\d{1,9})\b")
_DAYS_BEFORE = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY_S = 86_400.0
# how far into a line its date is looked for
_HEAD = 160


@dataclass(frozen=True, slots=True)
class Speaker:
    """The writer of a line: its rank, its place on its node, its host; None and '' if the line does not name them.

    `node` tells the nodes apart if srun numbers them; otherwise it is 0.
    """

    rank: int | None = None
    local: int | None = None
    host: str = ""
    node: int = 0


NOBODY = Speaker()


def read_speaker(line: str) -> tuple[Speaker, str]:
    """The writer of the line, and the line without the prefix that names the writer."""
    host = local = None
    node = 0
    found = _HOST.match(line)
    if found is not None:
        host, line = found[1], line[found.end() :]
    name, text = unprefixed(line)
    rank = _last(_RANK, name)
    placed = _LOCAL.search(name)
    if placed is not None:
        local, node = int(placed[1]), _last(_TASK, name) or 0
    elif name and rank is None:
        rank = _last(_TASK, name)
    if rank is None and "ank" in text[:_HEAD]:
        rank = _last(_RANK, text[:_HEAD])
    if " NCCL " in text:
        told = _NCCL.match(text.lstrip())
        if told is not None:
            host, local = told[1], local if rank is not None else int(told[2])
    if rank is None and local is None and host is None:
        return NOBODY, text
    return Speaker(rank, local, host or "", node), text


def _last(pattern: Pattern, text: str) -> int | None:
    numbers = [one for found in pattern.findall(text) for one in found if one]
    return int(numbers[-1]) if numbers else None


def read_time(line: str, day_of: float | None = None) -> float | None:
    """Seconds since the year began by the line's own clock; a time without a date is on the day of `day_of`."""
    head = line[:_HEAD]
    if ":" not in head:
        return None
    found = _DATED.search(head) or _GLOG.search(head)
    if found is not None:
        month, day, *clock = found.groups()
        return _seconds(int(month), int(day), clock)
    named = _SYSLOG.search(head)
    if named is not None:
        return _seconds(_MONTHS.index(named[1]) + 1, int(named[2]), [*named.groups()[2:], None])
    bare = _CLOCK.search(head[:60])
    if bare is None:
        return None
    return _of_day(list(bare.groups())) + (0.0 if day_of is None else day_of // _DAY_S * _DAY_S)


def _seconds(month: int, day: int, clock: list[str | None]) -> float | None:
    if not 1 <= month <= 12:
        return None
    return (_DAYS_BEFORE[month - 1] + day) * _DAY_S + _of_day(clock)


def _of_day(clock: list[str | None]) -> float:
    hours, minutes, seconds, part = clock
    fraction = float(f"0.{part}") if part else 0.0
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0) + fraction


def read_step(line: str) -> int | None:
    """The training step that the line names, or None."""
    if "tep" not in line and "ter" not in line and "atch" not in line and "TEP" not in line and "pdate" not in line:
        return None
    found = _STEP.search(line)
    return None if found is None else int(found[1])
