"""The messages between a script and gpudoc: the order that goes in, and the events that come out.

The inside (`script/inside`) only uses the standard library to write events; this module defines valid lines.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from gpudoc.process.shortage import Shortage, shortage_told
from gpudoc.profile.model import ProfilePart

Purpose = Literal["look", "trial", "run"]
Framework = Literal["torch", "accelerate", "lightning", "transformers", "timm"]
Setting = Literal["num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "batch_size"]


class LoaderOrder(ProfilePart):
    """How a loader must be built; None keeps the script's value."""

    num_workers: int | None = Field(default=None, ge=0)
    prefetch_factor: int | None = Field(default=None, ge=1)
    pin_memory: bool | None = None
    persistent_workers: bool | None = None


class HookOrder(ProfilePart):
    """What the inside must do in one launch of the script.

    `loader` and `batch` apply to the loaders in `keys`, by LoaderSeen.key, and to loaders that a framework builds from
    one of them. With `steps` the inside says `measured` when this many steps ran after `warm_steps`, for at least
    `seconds`; on a GPU the warm-up also lasts `wake_s` after the first step. `longest_first` fills the first batches of
    those loaders with the largest samples.
    `record_samples` asks for a digest of each batch; with `digest_steps`, only of the first `digest_steps` steps.
    `record` asks for a StateRecord, `lines` for LinesSeen; with `lines` the look goes on for up to `evaluation_s`
    seconds if the source evaluates and the steps have not reached an evaluation.
    `nudge` moves each weight by its last bit before it is used: up, down, away from zero or towards it.
    With `single` it is the last bit of single precision, in which batches are then compared.
    `device_limit_bytes` is the limit for torch on its GPU: `device_index`, or the process's local rank if that is None.
    """

    purpose: Purpose
    keys: tuple[str, ...] = ()
    loader: LoaderOrder | None = None
    batch: int | None = Field(default=None, ge=1)
    longest_first: bool = False
    warm_steps: int = Field(default=0, ge=0)
    steps: int | None = Field(default=None, ge=1)
    seconds: float = Field(default=0.0, ge=0)
    wake_s: float = Field(default=0.0, ge=0)
    record_samples: bool = False
    digest_steps: int | None = Field(default=None, ge=0)
    record: bool = False
    nudge: Literal["", "up", "down", "out", "in"] = ""
    single: bool = False
    lines: bool = False
    evaluation_s: float = Field(default=0.0, ge=0)
    device_limit_bytes: int | None = Field(default=None, ge=1)
    device_index: int | None = Field(default=None, ge=0)


class ScriptEvent(ProfilePart):
    """An event from the inside; `at` is in seconds, as in `time.time`."""

    at: float


class ScriptStart(ScriptEvent):
    """A process imported torch; rank and world come from a launcher's variables; `program` has no folder."""

    kind: Literal["start"] = "start"
    pid: int
    ppid: int
    rank: int | None
    local_rank: int | None
    world: int | None
    program: str
    python: str
    torch: str
    cuda: str | None


class LoaderSeen(ScriptEvent):
    """A DataLoader was built: where, from what, and which settings of the order were applied or refused, and why.

    `key` identifies it across launches: the lines of the user's own code that led to it, its data set and whether it
    shuffles. `remade_from` is the number of the loader from which a framework built it; `sharded`: an iterable data set
    that asks get_worker_info. `notes` say what the applied settings may change.
    """

    kind: Literal["loader"] = "loader"
    number: int
    key: str
    place: str
    file: str
    line: int
    through: Framework
    remade_from: int | None
    dataset: str
    samples: int | None
    sampler: str
    batch_size: int | None
    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    persistent_workers: bool
    own_batch_sampler: bool
    iterable: bool
    sharded: bool
    length: int | None
    drop_last: bool
    script: dict[Setting, int | bool | None]
    applied: dict[Setting, int | bool] = Field(default_factory=dict)
    refused: dict[Setting, str] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()


class DataSeen(ScriptEvent):
    """Facts about a loader's batches; None if not checked.

    `random`: fetching a batch without workers drew random numbers. `other_thread`: another thread than the training
    thread reads the loader, so that waiting for it is not seen. `changed`: the fields of the data set object that
    changed between epochs, so that its workers were restarted. `largest`: the size of the largest sample found.
    """

    kind: Literal["data"] = "data"
    loader: int
    random: bool | None = None
    batch_bytes: int | None = None
    other_thread: bool | None = None
    changed: str | None = None
    largest: int | None = None


class Total(ProfilePart):
    """All steps of a process so far: seconds since the first request for a batch, and their waiting and evaluating."""

    steps: int = 0
    seconds: float = 0.0
    wait_s: float = 0.0
    evaluate_s: float = 0.0
    samples: int | None = None


class StepsSeen(ScriptEvent):
    """Optimizer steps since the last such event; the lists have one entry per step and are left empty in a `run`.

    `seconds[i]` is from the end of the previous step to the end of step `first + i`; `wait_s[i]` of it was waiting for
    data. `evaluated` are the steps before which another loader was read. On a GPU the clock is the host's: single steps
    blur, sums do not. `peak_bytes`: reserved by torch's allocator on a GPU, else private memory as RLIMIT_DATA counts;
    `device_bytes`: the memory that torch could hold there, reserved plus free. `finite`: whether the weights are
    finite, checked when enough was measured and at the end; None before that, or if they cannot be checked.
    """

    kind: Literal["steps"] = "steps"
    first: int
    count: int
    seconds: tuple[float, ...] = ()
    wait_s: tuple[float, ...] = ()
    samples: tuple[int | None, ...] = ()
    evaluated: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()
    loader: int | None
    total: Total
    rank: int | None
    world: int | None
    device: str
    device_name: str | None
    parameters: str
    autocast: str | None
    tf32: bool | None
    peak_bytes: int | None
    peak_allocated_bytes: int | None = None
    device_bytes: int | None = None
    finite: bool | None = None


class ExceptionLink(ProfilePart):
    """One exception of a chain: the names of its classes, its text, its errno."""

    types: tuple[str, ...]
    text: str
    errno: int | None = None


class ErrorSeen(ScriptEvent):
    """The exception that ended a process, the exceptions that led to it, and the CUDA allocator's numbers in bytes."""

    kind: Literal["error"] = "error"
    chain: tuple[ExceptionLink, ...]
    traceback: str = ""
    allocator: dict[str, int] = Field(default_factory=dict)

    @property
    def shortage(self) -> Shortage | None:
        """Which memory ran out; None if the exception is not about memory."""
        found = (shortage_told(link.types, link.text, link.errno) for link in self.chain)
        return next((kind for kind in found if kind is not None), None)

    @property
    def text(self) -> str:
        """The exception as in the last line of a traceback."""
        last = self.chain[0]
        return f"{last.types[0]}: {last.text}"


class Aside(ScriptEvent):
    """The hook stepped aside and why; the script goes on without it."""

    kind: Literal["aside"] = "aside"
    why: str


class StateRecord(ScriptEvent):
    """The result of a training after `steps`: digests of each scalar that backward was called on and of the state, the
    written files that still exist with their sizes, and the seconds that recording took during the steps.
    """

    kind: Literal["record"] = "record"
    steps: int
    roots: tuple[str, ...]
    losses: tuple[float | None, ...] = ()
    state: dict[str, str]
    files: dict[str, int]
    seconds: float


class LinesSeen(ScriptEvent):
    """The user's own lines on the main thread's stack: file, line, and in how many of `looks`.

    In `computing` of them a module, a backward or an optimizer was on the stack.

    `own`: the same, only for the innermost line of each look. `passes`: file, line, and how often it ran in a step, for
    the functions that hold a busy line. `keeps` are lines that add to a variable that grew from step to step;
    `no_backward` are lines that ran modules in evaluation whose graph no backward reached. `evaluated_after`: the steps
    before the first evaluation, None if none was seen; `awaited`: the source holds one, but it was not seen.
    `evaluation_bytes`: the growth of the peak in the first evaluation. `padded`: file, line, the mean share of the
    model's input that is padding beyond the longest sample of each batch, and the one whole number used as padding.
    """

    kind: Literal["lines"] = "lines"
    looks: int
    hot: tuple[tuple[str, int, int], ...]
    keeps: tuple[tuple[str, int], ...]
    no_backward: tuple[tuple[str, int], ...]
    anomaly: bool
    threads: int
    computing: int = 0
    evaluated_after: int | None = None
    evaluation_bytes: int | None = None
    awaited: bool = False
    own: tuple[tuple[str, int, int], ...] = ()
    passes: tuple[tuple[str, int, float], ...] = ()
    padded: tuple[tuple[str, int, float, int | None], ...] = ()


class StepsMeasured(ScriptEvent):
    """The steps that the order asked for have run."""

    kind: Literal["measured"] = "measured"


class ScriptEnd(ScriptEvent):
    """The process ends by itself: how many steps it made in how many seconds since it imported torch."""

    kind: Literal["end"] = "end"
    steps: int
    seconds: float


Event = Annotated[
    ScriptStart
    | LoaderSeen
    | DataSeen
    | StepsSeen
    | ErrorSeen
    | Aside
    | StateRecord
    | LinesSeen
    | StepsMeasured
    | ScriptEnd,
    Field(discriminator="kind"),
]
EVENTS: TypeAdapter[Event] = TypeAdapter(Event)
