"""The messages between the search and its trials, with one encoder and one decoder.

`TrialStart` goes to the fork server; every answer from it and from the trials is an `Envelope`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.arguments import own_python
from gpudoc.profile.model import Hardware, WorkloadKey
from gpudoc.tune.trial.messages import End, How, Measure, PlanAnswer, Point, TrialPart, TrialRequest

# the most bytes of one message; a packet of the socket holds twice as much
_MAX_BYTES = 1 << 16
_MAX_TEXT = 2000
_SHOWN = 200
# a fork server that has imported PyTorch waits for this; until then another one may load the workload
GO_ON = b"go on"

M = TypeVar("M", bound="Message")


class BrokenMessageError(GpudocError):
    """A process sent something other than a message of this version."""


class Message(TrialPart):
    """A frozen record that crosses a process border."""


class RankPlace(Message):
    """Where one rank of a trial runs: device, memory limit, files shared with the other ranks and the parent.

    `cap` is the largest batch to try; no further steps begin after `stop_s` seconds.
    """

    device: str
    limit_bytes: int | None
    rank: int = 0
    store: str = ""
    cap: int = 1
    orders: str = ""
    stop_s: float = float("inf")


class TrialStart(Message):
    """Start the processes of one trial, or (`inspect`) of an inspection, writing to the file `log`."""

    trial: int
    request: TrialRequest
    place: RankPlace
    log: str
    inspect: bool = False


class Ready(Message):
    """The fork server has imported the workload; `no_fork` says why it cannot be forked, empty if it can."""

    kind: Literal["ready"] = "ready"
    no_fork: str = ""


class Failed(Message):
    """The fork server could not import the workload; `traceback` is empty for a GpudocError."""

    kind: Literal["failed"] = "failed"
    message: str
    hint: str = ""
    traceback: str = ""


class TrialStarted(Message):
    """The processes of a trial run, in the process group `group`."""

    kind: Literal["started"] = "started"
    group: int
    how: How


class Exited(Message):
    """A process of a trial is gone: its exit status, negative for a signal."""

    kind: Literal["exited"] = "exited"
    status: int


class TrialStage(Message):
    """The stage that a trial begins, and its batch."""

    kind: Literal["stage"] = "stage"
    stage: str
    batch: int | None = None


class BatchMeasured(Message):
    """The result of one batch; `legs` are the parts of a scaling measurement, in seconds per step of each block."""

    kind: Literal["measured"] = "measured"
    point: Point
    legs: dict[str, tuple[float, ...]] = Field(default_factory=dict)


class FirstLosses(Message):
    """The losses of a variant's first steps, one for each update."""

    kind: Literal["first_losses"] = "first_losses"
    losses: tuple[float, ...]


class Fact(Message):
    """One number that a trial measured in addition to its points."""

    kind: Literal["fact"] = "fact"
    name: Measure | PlanAnswer
    value: float


class LifeSign(Message):
    """A sign of life."""

    kind: Literal["beat"] = "beat"


class Waiting(Message):
    """The trial rests until SIGUSR1."""

    kind: Literal["waiting"] = "waiting"


class RankEnd(Message):
    """How a rank's part ended; `code` is the exit code that the error asks for."""

    kind: Literal["ended"] = "ended"
    end: End = End.FITS
    detail: str = ""
    hint: str = ""
    traceback: str = ""
    code: int = 1


class TorchCard(Message):
    """The GPU as torch sees it; `free_bytes` includes the memory that this process holds, `count` is all GPUs."""

    name: str
    capability: tuple[int, int] | None
    free_bytes: int
    count: int


class Inspection(Message):
    """Facts on workload and device that a search needs before its first trial; no `card` on a CPU.

    `baseline_bytes` is the private memory of a process before its first step. `matmul_precision` and `cudnn_benchmark`
    are torch's switches as the user's code left them. `has_policies` is True if a part of the activations can be
    recomputed, too.
    """

    kind: Literal["inspection"] = "inspection"
    num_samples: int
    num_threads: int
    baseline_bytes: int
    parameter_bytes: int
    workload: WorkloadKey
    hardware: Hardware
    torch: str
    can_recompute: bool
    has_policies: bool = False
    can_fuse: bool
    has_images: bool
    has_bf16: bool
    can_foreach: bool = False
    can_shrink: bool = False
    has_blocks: bool = False
    has_convolutions: bool = False
    sizes_differ: bool = False
    matmul_precision: str = ""
    cudnn_benchmark: bool = False
    card: TorchCard | None = None


Event = (
    Ready
    | Failed
    | TrialStarted
    | Exited
    | TrialStage
    | BatchMeasured
    | FirstLosses
    | Fact
    | LifeSign
    | Waiting
    | RankEnd
    | Inspection
)
Emit = Callable[[Event], None]


class Envelope(Message):
    """One event of one rank of a trial; an event of the fork server itself if `trial` is None."""

    trial: int | None = None
    rank: int = 0
    event: Annotated[Event, Field(discriminator="kind")]


def encode(message: Message) -> bytes:
    """The message as one line of JSON."""
    return message.model_dump_json().encode()


def decode(kind: type[M], data: bytes, sender: str) -> M:
    """The message of this kind in `data`; BrokenMessageError, which names the sender, if it is something else."""
    try:
        return kind.model_validate_json(data, strict=True)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        why = f"{place}: {first['msg']}" if place else first["msg"]
        text = data[:_SHOWN].decode(errors="replace") + ("..." if len(data) > _SHOWN else "")
        raise BrokenMessageError(
            f"{sender} sent something other than a {kind.__name__} message ({why}): {text!r}",
            hint="do all processes run the same gpudoc? If so, this is a fault of gpudoc; open an issue with this line",
            exit_code=ExitCode.FAULT,
        ) from None


def send(channel: socket.socket, message: Message) -> None:
    """Send one message as one packet, so that several processes can share the socket; texts that do not fit are cut."""
    data = encode(message)
    channel.send(data if len(data) <= _MAX_BYTES else json.dumps(_cut(json.loads(data))).encode())


def _cut(value: object) -> object:
    match value:
        case str():
            return value[:_MAX_TEXT]
        case list():
            return [_cut(item) for item in value]
        case dict():
            return {name: _cut(item) for name, item in value.items()}
    return value


def receive(channel: socket.socket, kind: type[M], sender: str) -> M | None:
    """The next message, None if no sender is left; raises the errors of `recv`."""
    data = channel.recv(2 * _MAX_BYTES)
    return decode(kind, data, sender) if data else None


def command(call: str) -> list[str]:
    """The arguments of a Python process that makes one call to a function of the fork server."""
    return own_python(f"import gpudoc.tune.trial.fork_server as it; it.{call}")
