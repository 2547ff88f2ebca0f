"""Whether a workload fits a card or a memory size, its largest batch there, and the changes that would make it fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from gpudoc.doctor.card_memory import half_of_the_host
from gpudoc.errors import GpudocError
from gpudoc.knowledge.cards import KnownCard, context_bytes, find_card, require_card
from gpudoc.plan.tape import StorageKind
from gpudoc.units import format_bytes, parse_size


@dataclass(frozen=True, kw_only=True)
class PlanTarget:
    """A card, or only an amount of memory."""

    name: str
    memory_bytes: int
    card: KnownCard | None = None

    @property
    def capability(self) -> tuple[int, int] | None:
        """Compute capability, None for a bare size."""
        return None if self.card is None else self.card.capability

    @property
    def allocator_bytes(self) -> int:
        """Bytes that PyTorch's allocator may reserve: the memory minus the context."""
        return self.memory_bytes - context_bytes(self.capability)

    @property
    def precision(self) -> str:
        """The precision of 'auto' training there: bf16 from compute capability 8.0 on, fp16 before."""
        return "fp16" if self.capability is not None and self.capability < (8, 0) else "bf16"


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One more change on top of those before it, and the predicted need of one GPU: nothing was run.

    `how` is the text to type. `micro_batch` is the largest that fits, up to the reference batch, and 1 if none fits;
    `peak_bytes` is its peak. `slowdown` is at least the GPU time per sample relative to the whole reference batch at
    once; None if it depends on an unknown link. `moved_bytes` go over links in one micro batch, `host_bytes` are in the
    host's memory for each GPU. Rungs after an `is_aside` do not include that change.
    """

    change: str
    how: str
    micro_batch: int
    accumulation: int
    largest_batch: int
    peak_bytes: int
    slowdown: float | None
    gpus: int = 1
    moved_bytes: int = 0
    host_bytes: int = 0
    is_aside: bool = False

    @property
    def fits(self) -> bool:
        """Whether a micro batch of one fits."""
        return self.largest_batch >= 1

    def document(self) -> dict[str, object]:
        """The entry of `ladder` in gpudoc.tune.v1."""
        return {**asdict(self), "fits": self.fits, "basis": "predicted, not run"}


@dataclass(frozen=True, kw_only=True)
class TargetAnswer:
    """The answer for one target; every figure is a prediction, and the peak is expected within `interval`, in bytes."""

    target: PlanTarget
    precision: str
    largest_batch: int
    peak_bytes_at_1: int
    peak_bytes: int
    bytes_per_sample: int
    interval: tuple[int, int]
    composition: dict[StorageKind, int]
    largest_batch_interval: tuple[int, int]
    least_step_s: float | None
    ladder: tuple[Rung, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether a batch of one fits."""
        return self.largest_batch >= 1

    def document(self) -> dict[str, object]:
        """The entry of `targets` in gpudoc.tune.v1."""
        return {
            "target": self.target.name,
            "memory_bytes": self.target.memory_bytes,
            "precision": self.precision,
            "fits": self.fits,
            "largest_batch": self.largest_batch,
            "largest_batch_interval": list(self.largest_batch_interval),
            "peak_bytes": self.peak_bytes,
            "peak_bytes_at_1": self.peak_bytes_at_1,
            "bytes_per_sample": self.bytes_per_sample,
            "interval": {"low_bytes": self.interval[0], "high_bytes": self.interval[1]},
            "composition": {kind.value: size for kind, size in self.composition.items()},
            "step_s_at_least": self.least_step_s,
            "advice": [
                {"change": rung.change, "peak_bytes": rung.peak_bytes, "largest_batch": rung.largest_batch}
                for rung in self.ladder
                if rung.fits
            ],
            "ladder": [rung.document() for rung in self.ladder],
        }


@dataclass(frozen=True, kw_only=True)
class TargetsResult:
    """The answers for all targets of one workload."""

    name: str
    num_parameters: int
    reference_batch: int
    probed: str | None
    notes: tuple[str, ...]
    answers: tuple[TargetAnswer, ...]

    def documents(self) -> list[dict[str, object]]:
        """The `targets` of gpudoc.tune.v1."""
        shared = {"basis": "two real steps on the CPU" if self.probed else "traced", "notes": list(self.notes)}
        return [{**answer.document(), **shared} for answer in self.answers]


def _whole(card: KnownCard) -> PlanTarget:
    """An idle `card`; if it shares the host's memory, with the part that tune and train would take."""
    usable = half_of_the_host(card.memory_bytes).limit_bytes if card.shares_host else card.memory_bytes
    return PlanTarget(name=card.name, memory_bytes=usable, card=card)


def parse_target(text: str) -> PlanTarget:
    """A card by name or a size ('24GiB'); GpudocError for an unknown card or a size below that of a CUDA context."""
    name = text.strip()
    card = find_card(name)
    if card is not None:
        return _whole(card)
    try:
        size = parse_size(name)
    except ValueError:
        return _whole(require_card(name))
    target = PlanTarget(name=name, memory_bytes=size)
    if target.allocator_bytes <= 0:
        need = format_bytes(context_bytes(None))
        raise GpudocError(f"target {name}: less than a CUDA context takes ({need})", hint="name 1GiB or more")
    return target
