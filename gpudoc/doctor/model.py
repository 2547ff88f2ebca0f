"""Evidence in, report out: the words in which every room of gpudoc names a cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from gpudoc.facts.model import Machine
from gpudoc.facts.readers.model import Reading

if TYPE_CHECKING:
    from gpudoc.facts.process import Watch

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
    """A cause that was found here: how sure, how bad, how it is known, and what to type.

    A finder leaves empty what the catalogue says better: `diagnose` fills title, why, fix and url from the cause's row.
    """

    id: str
    confidence: float
    evidence: tuple[Observation, ...]
    severity: Severity = "broken"
    title: str = ""
    why: str = ""
    fix: tuple[Remedy, ...] = ()
    explains: tuple[str, ...] = ()
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What the user said should be true: how many GPUs, a device that was asked for."""

    num_gpus: int | None = None
    device: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that a judgement may look at; what was not collected is None.

    A live machine may carry a `reading` too: torch's warning, an import error and kernel lines, read like anybody's.
    """

    source: Source
    machine: Machine = field(default_factory=Machine)
    reading: Reading | None = None
    watch: Watch | None = None
    expectation: Expectation = field(default_factory=Expectation)


@dataclass(frozen=True, slots=True)
class Skip:
    """A cause that could not be checked here, with the fact that is missing."""

    because: str


Packager = Literal["pip", "uv", "conda", "poetry"]
Place = Literal["host", "docker", "kubernetes", "slurm", "notebook", "colab", "wsl", "windows", "macos", "jetson"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The system that the evidence describes, as far as a remedy's wording depends on it."""

    packager: Packager = "pip"
    place: Place = "host"
    distribution: str = ""
    driver_cuda: tuple[int, int] | None = None
    torch_version: str = ""
    capability: tuple[int, int] | None = None
    memory_total_bytes: int | None = None
    num_gpus: int | None = None


Advise = Callable[[Setting], tuple[Remedy, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A row of the catalogue: what the cause is called, means and does, how it is mended, and who says so.

    `explains` names causes whose finding is a consequence of this one and moves under it.
    """

    id: str
    family: Family
    title: str
    meaning: str
    why: str
    fix: Advise
    sources: tuple[str, ...]
    explains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finder:
    """One pure way to find a cause; several may look for the same cause, and their findings are merged.

    `find` yields nothing when the cause is ruled out, `Skip` when it cannot be decided, findings otherwise.
    `reads` says what it looks at: 'machine' runs on live facts, 'text' on a reading, 'watch' on a watched job.
    `needs` are facts as dotted paths of Machine ('driver.nvml_code'); one that is Absent skips the finder.
    """

    id: str
    find: Callable[[Evidence], Iterator[Finding | Skip]]
    reads: Literal["machine", "text", "watch"] = "machine"
    needs: tuple[str, ...] = ()


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
    recognised: tuple[str, ...] = ()
