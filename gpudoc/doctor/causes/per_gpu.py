"""Checks of one GPU at a time: a sign declares the facts that it reads, and is used only if all of them are known.

A sign never gets an absent fact, so it cannot mistake it for health: a GPU that lacks a fact is skipped, by index.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar, Union

from gpudoc.doctor.cards import told_card
from gpudoc.doctor.causes.live import nvml_gpus, seen_of, told_gpus
from gpudoc.doctor.causes.sign import origin_of
from gpudoc.doctor.model import RANK, Card, Evidence, Finder, Finding, Observation, Severity, Skip
from gpudoc.facts.model import NOT_SUPPORTED, Absent, Gpu, Machine, fact_at
from gpudoc.frozen import dataclass

A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The observation of one sign on one GPU; `title` replaces the catalogue's if the numbers matter."""

    text: str
    severity: Severity = "warning"
    confidence: float = 0.9
    title: str = ""


@dataclass(frozen=True, slots=True)
class Sign:
    """One way to see a cause on one GPU.

    The parameters of `judge` are the facts that it reads: each is the fact of Gpu with that name (`link_width` is the
    link's width), or with the name in `names`, as a plain value. It returns None if all is well, and Absent if a part
    of a given value is unknown. `shown` are facts that a finding quotes if they are known.
    """

    judge: Callable[..., Union[Seen, Absent, None]]
    names: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The facts of Gpu that the sign needs, as dotted paths."""
        return tuple(map(_path, self.names)) or paths_of(self.judge)

    def ask(self, gpu: Gpu) -> Seen | Absent | None:
        """The sign's answer for one GPU; Absent, with path and reason, if one of its facts is unknown."""
        return read(gpu, self.judge, self.paths)


def flag(name: str, seen: Seen) -> Sign:
    """The sign that gives `seen` if the fact with this name is true."""

    def judge(is_set: bool) -> Seen | None:
        return seen if is_set else None

    return Sign(judge, names=(name,))


@functools.cache
def paths_of(judge: Callable[..., object]) -> tuple[str, ...]:
    """The facts of Gpu that the parameters of `judge` name, as dotted paths."""
    return tuple(map(_path, inspect.signature(judge).parameters))


def read(gpu: object, judge: Callable[..., A], paths: tuple[str, ...] = ()) -> A | Absent:
    """The answer of `judge` for a GPU's or device's facts, or Absent with path and reason of the first unknown one."""
    values = []
    for path in paths or paths_of(judge):
        value = fact_at(gpu, path)
        if isinstance(value, Absent):
            return Absent(f"{path}: {value.reason}")
        values.append(value)
    return judge(*values)


def _path(name: str) -> str:
    return f"link.{name.removeprefix('link_')}" if name.startswith("link_") else name


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCheck:
    """A cause and all signs of it on one GPU.

    A GPU passes if every sign that it supports was read, and at least one was. `only` says to which GPUs the cause can
    apply, and `unasked` why a whole machine cannot be checked for it. `told` is the severity in a pasted text: there, a
    fault is still the problem even if the driver recovered from it.
    """

    cause: str
    signs: tuple[Sign, ...]
    only: Callable[..., bool] | None = None
    unasked: Callable[[Machine], str] = lambda _: ""
    told: Severity | None = None

    def finder(self) -> Finder:
        """This check as the registry lists it."""
        return Finder(id=self.cause, find=self.find, needs=("gpus",))

    def text_finder(self) -> Finder:
        """The same check of the GPUs that a text states."""
        return Finder(id=self.cause, find=self.find_in_text, reads="text")

    def find_in_text(self, evidence: Evidence) -> Iterator[Finding | Skip]:
        """One finding for all GPUs of a text on which a sign was seen; a fact missing from the text is not a Skip."""
        found = [(gpu, sign, seen) for gpu in told_gpus(evidence) for sign, seen in self._look(gpu)[0]]
        if found:
            yield self._finding(found, text=evidence)

    def find(self, evidence: Evidence) -> Iterator[Finding | Skip]:
        """One finding for all GPUs on which a sign was seen, and one Skip that names the unchecked GPUs, and why."""
        gpus, unasked = nvml_gpus(evidence.machine), self.unasked(evidence.machine)
        if unasked or not gpus:
            yield Skip(unasked or "NVML lists no GPU")
            return
        looks = [(gpu, *self._look(gpu)) for gpu in gpus]
        found = [(gpu, sign, one) for gpu, seen, _ in looks for sign, one in seen]
        if found:
            yield self._finding(found)
        yield from skip_of((reason, gpu.index) for gpu, _, reason in looks if reason)

    def _look(self, gpu: Gpu) -> tuple[list[tuple[Sign, Seen]], str]:
        """The observations on one GPU, and why it does not count as checked; '' if it does."""
        if self.only is not None:
            applies = read(gpu, self.only)
            if not isinstance(applies, bool):
                return [], applies.reason
            if not applies:
                return [], ""
        seen, absent = [], []
        asked = 0
        for sign in self.signs:
            answer = sign.ask(gpu)
            if isinstance(answer, Absent):
                absent.append(answer.reason)
                continue
            asked += 1
            if answer is not None:
                seen.append((sign, answer))
        unread = [reason for reason in absent if not reason.endswith(NOT_SUPPORTED)]
        return seen, next(iter(unread or ([] if asked else absent)), "")

    def _finding(self, found: list[tuple[Gpu, Sign, Seen]], *, text: Evidence | None = None) -> Finding:
        gpu, _, lead = min(found, key=lambda entry: (RANK[entry[2].severity], -entry[2].confidence))
        gpus = list({entry.index: entry for entry, _, _ in found}.values())
        more = f" (and {len(gpus) - 1} more)" if len(gpus) > 1 else ""
        evidence = [_quote(one, sign, seen, text) for one, sign, seen in found]
        return Finding(
            id=self.cause,
            severity=lead.severity if text is None else self.told or lead.severity,
            confidence=lead.confidence,
            cards=tuple(card for one in gpus for card in ((Card.of(one),) if text is None else told_card(one))),
            title=f"GPU {gpu.index}{more}: {lead.title}" if lead.title else "",
            evidence=tuple(evidence),
        )


def skip_of(unread: Iterable[tuple[str, int]]) -> Iterator[Skip]:
    """One Skip for all unchecked GPUs: 'GPU 1, 2: ecc_enabled: no permission'; none if all were checked."""
    indices: dict[str, list[int]] = {}
    for reason, index in unread:
        indices.setdefault(reason, []).append(index)
    if indices:
        yield Skip("; ".join(f"GPU {', '.join(map(str, of_it))}: {reason}" for reason, of_it in indices.items()))


def _quote(gpu: Gpu, sign: Sign, seen: Seen, text: Evidence | None) -> Observation:
    known = ((path, fact_at(gpu, path)) for path in sign.shown)
    also = [f"{path} {value}" for path, value in known if not isinstance(value, Absent)]
    origin = "NVML" if text is None else origin_of(text, f"gpus.{gpu.index}.{sign.paths[0]}")
    return seen_of(gpu, "; ".join([seen.text, *also]), origin)
