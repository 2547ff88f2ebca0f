"""Finders of a running job: the parameters of a judge are the parts of the watch that it reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpudoc.doctor.live.device import DeviceUse, summarise_devices
from gpudoc.doctor.live.shares import RankShares, summarise
from gpudoc.doctor.model import Evidence, Finder, Finding, Skip
from gpudoc.facts.model import Absent, Fact
from gpudoc.facts.process import Limits, Watch

Judge = Callable[..., "Finding | Skip | None"]


def watched(name: str, judge: Judge) -> Finder:
    """The finder of this cause; it is skipped, with the reason, if a part that its judge reads was not seen."""
    wanted = tuple(inspect.signature(judge).parameters)

    def find(evidence: Evidence) -> Iterator[Finding | Skip]:
        assert evidence.watch is not None
        parts = [_PARTS[part](evidence.watch) for part in wanted]
        unseen = next((part for part in parts if isinstance(part, Absent)), None)
        answer = judge(*parts) if unseen is None else Skip(unseen.reason)
        if answer is not None:
            yield answer

    return Finder(id=name, find=find, reads="watch")


def busiest(watch: Watch) -> Fact[DeviceUse]:
    """The job's GPU that is busy for most of the time."""
    devices = summarise_devices(watch)
    return devices if isinstance(devices, Absent) else max(devices, key=lambda device: device.busy)


def _ranks(watch: Watch) -> Fact[Sequence[RankShares]]:
    return Absent(f"stacks: {watch.stacks.reason}") if isinstance(watch.stacks, Absent) else summarise(watch).ranks


def _lead(watch: Watch) -> Fact[RankShares]:
    ranks = _ranks(watch)
    return ranks if isinstance(ranks, Absent) else summarise(watch).lead or Absent("no training process was seen")


def _limits(watch: Watch) -> Fact[Limits]:
    return Absent(f"limits: {watch.limits.reason}") if isinstance(watch.limits, Absent) else watch.limits


_PARTS: Mapping[str, Callable[[Watch], object]] = {
    "watch": lambda watch: watch,
    "job": summarise,
    "ranks": _ranks,
    "lead": _lead,
    "devices": summarise_devices,
    "gpu": busiest,
    "limits": _limits,
}
