"""The data types of a benchmark: cases make readings, rounds of readings make measurements, a record keeps them all.

History of SCHEMA gpudoc.bench.v1 and BENCH_VERSION (raise it whenever a figure is measured in another way):
1: first.
2: fp8 with fast accumulation; the GPU is woken before the first case; all-reduce without torchrun.
3: --quick measures fewer rows in more processes; names of CPU memory rows do not contain the bytes, which are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from gpudoc.doctor.model import Finding
from gpudoc.facts.identify import gpu_at, pci_of, with_address
from gpudoc.facts.model import Absent, Gpu, Machine, PciDevice

if TYPE_CHECKING:
    from gpudoc.bench.sampling import Bench

SCHEMA = "gpudoc.bench.v1"
BENCH_VERSION = 3

# key in a reading's context: how many of the processes on the GPU are gpudoc's own; one if the key is missing
OWN_PROCESSES = "own_gpu_processes"

Parameter = str | int | float
Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawReading:
    """The measurement of one case at one point in one round: raw samples in `unit`, never averaged.

    `context` holds numbers read while sampling (cpu_clock_ghz, stolen_share, other_cpus_max, sample_s, verified_bytes).
    """

    name: str
    device: str
    parameters: Mapping[str, Parameter]
    unit: str
    samples: tuple[float, ...]
    better: Better = "higher"
    context: Mapping[str, float] = field(default_factory=dict)
    corrupted: str = ""
    round: int = 0
    began_s: float = 0.0
    ended_s: float = 0.0

    @property
    def key(self) -> str:
        """Name, device and parameters as one line; equal keys are the same row."""
        return row_key(self.name, self.device, self.parameters)


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """A case that gave no figure here, and why; `failed` if it began and broke."""

    case: str
    because: str
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A group of rows measured together: `absent_because` gives the reason it cannot run here, or ''.

    `share` is its part of a round's time relative to the other cases. `rows` explains each row, by name: its
    measurement and the meaning of a low figure.
    """

    name: str
    meaning: str
    share: float
    absent_because: Callable[[Bench], str]
    run: Callable[[Bench], Iterator[RawReading]]
    rows: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The highest possible value on this hardware, its formula with numbers, and the value at the run's clock."""

    value: float
    formula: str
    at_measured_clock: float | None = None


@dataclass(frozen=True, slots=True)
class NoCeiling:
    """No ceiling is known, and why."""

    because: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """A reason to trust a figure less: `id` for programs, `text` for people."""

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One row: `value` is the median of the rounds' medians, or None if it was rejected as impossible.

    `low` and `high` are the stated interval: the 95 % interval over the rounds together with the pooled p10 and p90.
    """

    name: str
    device: str
    parameters: Mapping[str, Parameter]
    unit: str
    better: Better
    value: float | None
    low: float
    high: float
    rounds: tuple[tuple[float, ...], ...]
    p10: float
    p50: float
    p90: float
    context: Mapping[str, float]
    ceiling: Ceiling | NoCeiling
    doubts: tuple[Doubt, ...] = ()
    corrupted: str = ""

    @property
    def key(self) -> str:
        """Name, device and parameters as one line; equal keys are the same row."""
        return row_key(self.name, self.device, self.parameters)

    @property
    def share_of_ceiling(self) -> float | None:
        """Value divided by ceiling (1.0 is the ceiling); None if either is missing."""
        if self.value is None or isinstance(self.ceiling, NoCeiling):
            return None
        return self.value / self.ceiling.value

    @property
    def share_at_measured_clock(self) -> float | None:
        """Value divided by the ceiling at the clock seen during the run; None if that clock is unknown."""
        if self.value is None or isinstance(self.ceiling, NoCeiling) or not self.ceiling.at_measured_clock:
            return None
        return self.value / self.ceiling.at_measured_clock

    @property
    def other_gpu_processes(self) -> int:
        """The most processes other than gpudoc's own on the GPU at once; 0 also if they were not counted."""
        return max(0, int(self.context.get("gpu_processes_max", 0.0) - self.context.get(OWN_PROCESSES, 1.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A whole run: rows, missing measurements, causes of low rows, and the machine that it applies to."""

    environment: Mapping[str, Parameter]
    measurements: tuple[Measurement, ...]
    not_measured: tuple[NotMeasured, ...] = ()
    findings: tuple[Finding, ...] = ()
    interrupted: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The basis for judging a row: the machine's facts, torch's facts about the device, and all rows of the run."""

    machine: Machine
    device: str
    environment: Mapping[str, Parameter]
    rows: tuple[Measurement, ...]

    @property
    def gpu(self) -> Gpu | None:
        """The facts of the measured GPU, by its PCI address; None on a CPU or if they are absent."""
        kind, _, ordinal = self.device.partition(":")
        if kind != "cuda" or isinstance(self.machine.gpus, Absent):
            return None
        told = with_address(self.environment.get("pci_address"), self.machine.gpus)
        return told or gpu_at(int(ordinal or 0), self.machine)

    @property
    def pci(self) -> PciDevice | None:
        """The GPU on the PCI bus; None if it is not found there."""
        return None if self.gpu is None else pci_of(self.gpu, self.machine)

    def find(self, name: str) -> Measurement | None:
        """The first row of that name, or None."""
        return next((row for row in self.rows if row.name == name), None)


def row_key(name: str, device: str, parameters: Mapping[str, Parameter]) -> str:
    """The text that names a row: 'memory_copy cpu bytes=268435456 threads=2'."""
    rest = " ".join(f"{key}={parameters[key]}" for key in sorted(parameters))
    return f"{name} {device} {rest}".strip()
