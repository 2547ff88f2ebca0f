"""What the attempts of one job have in common: a node, a step, an error, a duration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from gpudoc.facts.readers.job_end import AttemptEnd
from gpudoc.frozen import dataclass

_FEWEST = 2
# attempts ended after the same time if each lasted at least _LONG_S and they differ by at most _SAME_S
_LONG_S, _SAME_S = 180.0, 75.0
# the signs by which a fault of one GPU or node shows
_OF_HARDWARE = ("gpu-error", "xid", "crash", "network-port", "slurm-signal", "torchrun-exit", "torchrun-member")
_OF_MEMORY = ("gpu-memory", "host-oom")


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """The feature that repeats, as an id of rank_kinds.yaml, and the words for its sentence."""

    repeat: str
    words: Mapping[str, str]


def find_common(ends: Sequence[AttemptEnd]) -> Common | None:
    """What most attempts have in common; None if fewer than two failed."""
    if len(ends) < _FEWEST:
        return None
    last = ends[-1]
    where = [(end.rank, end.host_name) for end in ends if end.host_name]
    hosts = [end.host_name for end in ends if end.host_name]
    steps = [end.step for end in ends if end.step]
    shapes = [end.shape for end in ends if end.text and end.kind in ("own", "unsigned", "weak")]
    minutes = _same_time(ends)
    out_of_memory = all(end.kind == "killed" or (end.lead and end.lead.row.id in _OF_MEMORY) for end in ends)
    for repeat, count in (
        ("rank_and_host", _most(where, ends)),
        ("host", _most(hosts, ends)),
        ("step", _most(steps, ends)),
        ("growth" if out_of_memory else "time", len(ends) if minutes else 0),
        ("same_error", _most(shapes, ends)),
        ("none", len(ends)),
    ):
        if count < _FEWEST or (repeat in ("rank_and_host", "host") and not _proves_node(ends, steps)):
            continue
        host = hosts[-1] if hosts else ""
        rank = f"rank {last.rank}" if last.rank is not None else "the same rank"
        return Common(
            repeat=repeat,
            words={
                "count": str(count),
                "first": f"{rank} on {host}",
                "host": host,
                "step": str(steps[-1]) if steps else "",
                "text": last.text,
                "minutes": str(round((minutes or 0) / 60)),
            },
        )
    return None


def _most(values: Sequence[Hashable], ends: Sequence[AttemptEnd]) -> int:
    """The count of the most frequent value; 0 if it is not the value of most attempts and of the last one."""
    if not values:
        return 0
    value, count = Counter(values).most_common(1)[0]
    return count if 2 * count > len(ends) and values[-1] == value else 0


def _proves_node(ends: Sequence[AttemptEnd], steps: Sequence[int]) -> bool:
    """Whether a repeated node points to a fault of that node.

    False if the job has no other node or if the same error repeats at the same step, unless every error is one that
    hardware faults cause.
    """
    if all(end.lead is not None and end.lead.row.id in _OF_HARDWARE for end in ends):
        return True
    same_step = len(steps) == len(ends) and len(set(steps)) == 1
    return ends[-1].num_hosts > 1 and not (same_step and len({end.shape for end in ends}) == 1)


def _same_time(ends: Sequence[AttemptEnd]) -> float | None:
    """The seconds after which all attempts ended, if they are equal."""
    times = [end.after_s for end in ends if end.after_s is not None]
    if len(times) < len(ends) or min(times) < _LONG_S or max(times) - min(times) > max(_SAME_S, 0.02 * max(times)):
        return None
    return sum(times) / len(times)
