"""Evidence in, report out: the words in which every room of gpudoc names a cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from gpudoc.facts.model import Machine

if TYPE_CHECKING:
    from gpudoc.facts.process import Watch
    from gpudoc.facts.readers import Reading

Severity = Literal["broken", "warning", "info"]
Verdict = Literal["healthy", "warning", "broken", "unknown"]
Source = Literal["machine", "file", "process", "fleet"]
Family = Literal["environment", "runtime", "live"]


@dataclass(frozen=True, slots=True)
class Observation:
    """One fact that supports a finding: its name, its value as text, and where it was read."""

    fact: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One thing to do: prose, and the exact command where there is one."""

    say: str
    run: str = ""
    needs_root: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A cause that was found here: how sure, how bad, how it is known, and what to type."""

    id: str
    severity: Severity
    confidence: float
    title: str
    why: str
    evidence: tuple[Observation, ...]
    fix: tuple[Remedy, ...]
    explains: tuple[str, ...] = ()
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What the user said should be true: how many GPUs, a device that was asked for."""

    num_gpus: int | None = None
    device: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that a judgement may look at; what was not collected is None."""

    source: Source
    machine: Machine = field(default_factory=Machine)
    reading: Reading | None = None
    watch: Watch | None = None
    expectation: Expectation = field(default_factory=Expectation)


@dataclass(frozen=True, slots=True)
class Skip:
    """A cause that could not be checked here, with the fact that is missing."""

    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause: its identity, what it means, and the pure function that looks for it.

    `find` yields nothing when the cause is ruled out, `Skip` when it cannot be decided, findings otherwise.
    """

    id: str
    family: Family
    meaning: str
    why: str
    find: Callable[[Evidence], Iterator[Finding | Skip]]
    sources: tuple[str, ...]
    explains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A cause that was not checked, as the report lists it."""

    id: str
    because: str


@dataclass(frozen=True, slots=True)
class Crashed:
    """A cause whose own code failed; the others went on."""

    id: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The judgement: findings with the root cause first, and what was not or could not be checked."""

    source: Source
    verdict: Verdict
    findings: tuple[Finding, ...]
    passed: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    crashed: tuple[Crashed, ...]
    machine: Machine
    seconds: Mapping[str, float] = field(default_factory=dict)
    unexplained: tuple[Observation, ...] = ()
    deciding_facts: tuple[str, ...] = ()
