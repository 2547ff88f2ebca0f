"""Evidence in, report out: the types with which every room of gpudoc describes a cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from gpudoc.errors import ExitCode
from gpudoc.facts.model import NOT_READ, Absent, Fact, Gpu, GpuProcess, Machine
from gpudoc.facts.readers.job_end import AttemptEnd
from gpudoc.facts.readers.job_failure import JobFailure
from gpudoc.facts.readers.model import ENGLISH, Language, Reading
from gpudoc.frozen import dataclass

if TYPE_CHECKING:
    from gpudoc.facts.process import Watch
    from gpudoc.facts.readers.timeline import Timeline

# most characters: shown of a text, quoted of a line, quoted before the words that matter, and kept
_MOST_SHOWN, _MOST_QUOTED, _BEFORE_THE_WORDS, _MOST_KEPT = 200, 160, 20, 4000
Severity = Literal["broken", "warning", "info"]
RANK: Mapping[Severity, int] = {"broken": 0, "warning": 1, "info": 2}
Verdict = Literal["healthy", "warning", "broken", "unknown"]
Source = Literal["machine", "file", "process", "fleet"]
Family = Literal["environment", "runtime", "live", "code"]


@dataclass(frozen=True, slots=True)
class Observation:
    """One fact that supports a finding: its name, its value as text, and where it was read.

    A long text is kept `whole` and cut again whenever it changes, so that the text is redacted before it is cut.
    `file` and `line` are the place if the observation is one in the user's code, else '' and 0.
    """

    fact: str
    value: str
    origin: str = field(metadata={"key": "from"})
    whole: str = field(default="", metadata={"key": None}, compare=False, repr=False)
    words: str = field(default="", metadata={"key": None}, compare=False, repr=False)
    file: str = field(default="", metadata={"key": None}, compare=False, repr=False)
    line: int = field(default=0, metadata={"key": None}, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Set the shown value from the whole text if that is kept."""
        if self.whole:
            object.__setattr__(self, "value", _shortened(self.whole, self.words))


def observe(fact: str, value: object, origin: str, *, words: str = "") -> Observation:
    """An observation with its value as one short line of text, from a little before the `words` that matter."""
    text = " ".join(str(value).split())
    is_short = len(text) <= (_MOST_QUOTED if words else _MOST_SHOWN)
    return Observation(fact, text, origin, "" if is_short else text[:_MOST_KEPT], "" if is_short else words)


def _shortened(text: str, words: str) -> str:
    return shorten(text, _MOST_QUOTED, text.find(words) - _BEFORE_THE_WORDS) if words else shorten(text)


def shorten(line: str, most: int = _MOST_SHOWN, begin: int = 0) -> str:
    """At most `most` characters of a line from `begin` on, cut between words, as half a number is another number."""
    if len(line) <= most:
        return line
    lowest = max(0, begin - most // 4)
    blank = line.rfind(" ", lowest, begin + 1) if begin > 0 else -1
    begin = blank + 1 if blank >= 0 else begin if lowest else 0
    end = begin + most - 3
    if end < len(line):
        blank = line.rfind(" ", begin + most // 2, end + 1)
        end = blank if blank > 0 else end
    return ("..." if begin else "") + line[begin:end] + ("..." if end < len(line) else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One thing to do: prose, and the exact command where there is one.

    `disruptive` marks a step that ends other people's work: a reset, a restart, a reload of kernel modules.
    """

    say: str
    run: str = ""
    needs_root: bool = False
    disruptive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The GPU that a finding is about, as far as its evidence names it; `facts` are those of the live machine.

    A command may name a card only from here: an index that is Absent is never guessed.
    """

    index: Fact[int] = NOT_READ
    pci_address: Fact[str] = NOT_READ
    uuid: Fact[str] = NOT_READ
    facts: Fact[Gpu] = field(default=NOT_READ, metadata={"key": None})

    @classmethod
    def of(cls, gpu: Gpu) -> Card:
        """The card of one GPU that NVML lists."""
        return cls(index=gpu.index, pci_address=gpu.pci_address, uuid=gpu.uuid, facts=gpu)

    @property
    def label(self) -> str:
        """'GPU 3 (…1a2b3c4d, 0000:3b:00.0)', with the parts that are known."""
        name = "a GPU" if isinstance(self.index, Absent) else f"GPU {self.index}"
        known = [] if isinstance(self.uuid, Absent) else [f"…{self.uuid[-8:]}"]
        known += [] if isinstance(self.pci_address, Absent) else [self.pci_address]
        return f"{name} ({', '.join(known)})" if known else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A cause that was found here: how sure, how bad, how it is known, and what to type.

    A finder may leave title, why, fix and url empty: `diagnose` fills them from the cause's row in the catalogue;
    `advise` stands before the row's own advice if one number of many decides what to do. A guess rests only on
    somebody's words, not on anything that a program printed.
    """

    id: str
    severity: Severity = "broken"
    confidence: float
    title: str = ""
    why: str = ""
    evidence: tuple[Observation, ...]
    fix: tuple[Remedy, ...] = ()
    advise: Advise | None = field(default=None, metadata={"key": None})
    explains: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()
    url: str = ""
    is_guess: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The user's expectation: the number of GPUs, and the device asked for."""

    num_gpus: int | None = None
    device: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that a judgement may look at; a part that was not collected is None.

    A live machine may have a `reading` too: torch's warning, an import error and kernel lines, read like any text.
    """

    source: Source
    machine: Machine = field(default_factory=Machine)
    reading: Reading | None = None
    watch: Watch | None = None
    timeline: Timeline | None = None
    end: AttemptEnd | None = None
    expectation: Expectation = field(default_factory=Expectation)


@dataclass(frozen=True, slots=True)
class Skip:
    """A cause that could not be checked here, with the fact that is missing."""

    because: str


Packager = Literal["pip", "uv", "conda", "poetry"]
Place = Literal["host", "docker", "kubernetes", "slurm", "notebook", "colab", "wsl", "windows", "macos", "jetson"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The system that the evidence describes, as far as a remedy's wording depends on it.

    `cards` are the finding's, `ill` those of all findings; `holders` are the processes of each GPU, by index, as far as
    a live machine knows them. `open_module` says whether the kernel module is the open kind, None if that is not known.
    `accelerator` is 'rocm' if an AMD GPU computes.
    """

    packager: Packager = "pip"
    accelerator: str = ""
    place: Place = "host"
    distribution: str = ""
    driver_cuda: tuple[int, int] | None = None
    torch_version: str = ""
    capability: tuple[int, int] | None = None
    num_gpus: int | None = None
    open_module: bool | None = None
    holders: Mapping[int, tuple[GpuProcess, ...]] = field(default_factory=dict)
    cards: tuple[Card, ...] = ()
    ill: tuple[Card, ...] = ()


Advise = Callable[[Setting], tuple[Remedy, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A row of the catalogue: what the cause is called, means and does, how it is mended, and who says so.

    `explains` names causes whose finding is a consequence of this one and moves under it. `severity` is for a finding
    that rests on a report's words alone; a finder sets its own.
    """

    id: str
    family: Family = "environment"
    title: str
    meaning: str
    why: str
    fix: Advise
    sources: tuple[str, ...]
    explains: tuple[str, ...] = ()
    severity: Severity = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finder:
    """One pure way to find a cause; several finders may look for the same cause, and their findings are merged.

    `find` yields nothing if the cause is ruled out, `Skip` if it cannot be decided, findings otherwise.
    `reads` names the input: 'machine' runs on live facts, 'text' on a reading, 'watch' on a watched job,
    'trace' on a profiler's trace.
    `needs` are facts as dotted paths of Machine ('driver.nvml_code'); the finder is skipped if one is Absent.
    """

    id: str
    find: Callable[[Evidence], Iterator[Finding | Skip]]
    reads: Literal["machine", "text", "watch", "trace"] = "machine"
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A cause that was not checked, as the report lists it."""

    id: str
    because: str

    @property
    def reason(self) -> str:
        """`because` without the path of the missing fact: 'torch is not built for CUDA or ROCm'."""
        path, _, reason = self.because.partition(": ")
        return reason if reason and "." in path and " " not in path else self.because


@dataclass(frozen=True, slots=True)
class Crashed:
    """A cause whose own code failed; the others went on."""

    id: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The judgement: findings with the root cause first, and what was not or could not be checked.

    `understood` holds a text's statements that a thing is in order, that it asks something or that its trouble is over;
    `answers` are for a plain question. `job` says how a job of several ranks ended, None for everything else.
    `language` is the language of the answer; the report itself is English.
    """

    source: Source
    verdict: Verdict
    job: JobFailure | None = None
    findings: tuple[Finding, ...]
    passed: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    crashed: tuple[Crashed, ...] = ()
    unexplained: tuple[Observation, ...] = ()
    deciding_facts: tuple[str, ...] = ()
    understood: tuple[Observation, ...] = ()
    answers: tuple[Remedy, ...] = ()
    recognised: tuple[str, ...] = ()
    language: Language = ENGLISH
    machine: Machine = field(default_factory=Machine, metadata={"key": "facts"})
    seconds: Mapping[str, float] = field(default_factory=dict)

    def exit_code(self, fail_on: Severity = "broken") -> ExitCode:
        """0 for healthy or warnings only, 1 for broken or unknown; with `fail_on` 'warning' also for warnings."""
        is_bad = self.verdict in ("broken", "unknown") or (fail_on == "warning" and self.verdict == "warning")
        return ExitCode.BAD_ANSWER if is_bad else ExitCode.OK
