"""The unchanged script: its loaders, which of them feeds the training, and how fast its steps are; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

from gpudoc.profile.model import ScriptLoader
from gpudoc.script.hook import ProcessSeen
from gpudoc.script.messages import LoaderSeen
from gpudoc.stats import median, median_interval

Lever = Literal["flag", "loader", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyStretch:
    """Steady steps of one process: for each its seconds, seconds of waiting for data, and samples (None: not known)."""

    step_s: tuple[float, ...]
    wait_s: tuple[float, ...]
    samples: tuple[int | None, ...]

    @property
    def mean_s(self) -> float:
        """Seconds per step."""
        return sum(self.step_s) / len(self.step_s)

    @property
    def wait_share(self) -> float:
        """The share of the time spent waiting for data, 0 to 1."""
        return min(1.0, sum(self.wait_s) / max(1e-9, sum(self.step_s)))

    @property
    def samples_per_s(self) -> float | None:
        """Samples per second of this process, over the steps whose samples are known; None if there are none."""
        known = [(count, step_s) for count, step_s in zip(self.samples, self.step_s, strict=True) if count is not None]
        return sum(count for count, _ in known) / max(1e-9, sum(step_s for _, step_s in known)) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptLook:
    """The unchanged script. `training` is the loader in its own code that feeds the steps, None if none was seen.

    `feeding` is the loader that a framework made of it. Samples per second are for all ranks, steps and bytes for one.
    """

    loaders: tuple[LoaderSeen, ...]
    training: LoaderSeen | None
    feeding: LoaderSeen | None
    ranks: int
    steps: int
    step_s: float
    step_interval_s: tuple[float, float]
    wait_share: float
    samples_per_s: float | None
    samples_per_step: int | None
    peak_bytes: int | None
    device_bytes: int | None
    device: str
    device_name: str | None
    precision: str
    parameters: str
    tf32: bool | None
    evaluates: bool
    torch: str
    cuda: str | None
    python: str
    start_s: float
    asides: tuple[str, ...] = ()

    @property
    def on_gpu(self) -> bool:
        """Whether the steps run on a GPU."""
        return not self.device.startswith("cpu")

    @property
    def batch(self) -> int | None:
        """The batch size that the training loader is built with; None if it has none."""
        return None if self.training is None else self.training.batch_size

    @property
    def micro_batches(self) -> int:
        """Batches per optimizer step, derived from the samples; 1 if these are not known."""
        if not self.batch or not self.samples_per_step:
            return 1
        return max(1, round(self.samples_per_step / self.batch))


def look_at(seen: Sequence[ProcessSeen], *, warm_steps: int, start_s: float, wake_s: float = 0.0) -> ScriptLook | None:
    """The look from the processes of one launch; None while no step was counted."""
    ranks = [one for one in seen if one.trains]
    stretches = [steady(one, warm_steps, wake_s) for one in ranks]
    if not ranks or not stretches[0].step_s:
        return None
    first, stretch = ranks[0], stretches[0]
    rates = [one.samples_per_s for one in stretches]
    last = first.steps[-1]
    feeding = first.feeding()
    peaks = [event.peak_bytes for one in ranks for event in one.steps if event.peak_bytes is not None]
    counts = [count for count in stretch.samples if count is not None]
    start = first.start
    return ScriptLook(
        loaders=tuple(loader for loader in first.loaders if loader.remade_from is None),
        training=None if feeding is None else first.origin(feeding.number),
        feeding=feeding,
        ranks=max(len(ranks), last.world or 1),
        steps=len(stretch.step_s),
        step_s=stretch.mean_s,
        step_interval_s=median_interval(blocks(stretch.step_s)),
        wait_share=stretch.wait_share,
        samples_per_s=sum(rate for rate in rates if rate is not None) if None not in rates else None,
        samples_per_step=round(median(counts)) if counts else None,
        peak_bytes=max(peaks, default=None),
        device_bytes=last.device_bytes,
        device=last.device,
        device_name=last.device_name,
        precision=_precision(last.autocast, last.parameters),
        parameters=last.parameters,
        tf32=last.tf32,
        evaluates=any(event.evaluated for event in first.steps),
        torch=start.torch if start else "",
        cuda=start.cuda if start else None,
        python=start.python if start else "",
        start_s=start_s,
        asides=tuple(dict.fromkeys(why for one in seen for why in one.asides)),
    )


def lever_of(look: ScriptLook, *, takes_batch: bool) -> tuple[Lever, str]:
    """Where the batch can be set, and, for 'none', why it cannot be set."""
    if takes_batch:
        return "flag", ""
    loader = look.training
    if loader is None:
        return "none", "no DataLoader fed the steps; write {batch} in the command in place of the batch size"
    if loader.own_batch_sampler:
        return "none", f"{loader.place} uses a batch_sampler; write {{batch}} in the command"
    if not loader.batch_size:
        return "none", f"{loader.place} is built without a batch size; write {{batch}} in the command"
    return "loader", ""


def steady(seen: ProcessSeen, warm_steps: int, wake_s: float = 0.0) -> SteadyStretch:
    """The steps after the warm-up, or all but the first if they are few; without steps that follow an evaluation.

    On a GPU the warm-up also lasts `wake_s` after the first step, but at most half of a short run.
    """
    rows: list[tuple[float, float, int | None]] = []
    for event in seen.steps:
        for index, seconds in enumerate(event.seconds):
            if event.first + index in event.evaluated:
                continue
            wait = event.wait_s[index] if index < len(event.wait_s) else 0.0
            samples = event.samples[index] if index < len(event.samples) else None
            rows.append((seconds, wait, samples))
    if wake_s and seen.steps and not seen.steps[-1].device.startswith("cpu"):
        warm_steps = max(warm_steps, _steps_until(wake_s, [row[0] for row in rows]))
    kept = rows[warm_steps:] if len(rows) >= warm_steps + 4 else rows[1:] or rows
    return SteadyStretch(
        step_s=tuple(row[0] for row in kept),
        wait_s=tuple(row[1] for row in kept),
        samples=tuple(row[2] for row in kept),
    )


def _steps_until(wake_s: float, step_s: Sequence[float]) -> int:
    """How many steps have run when `wake_s` after the first step are over; at most half of all steps."""
    most, behind = len(step_s) // 2, accumulate(step_s[1:], initial=0.0)
    return min(most, next((count for count, past in enumerate(behind, start=1) if past >= wake_s), most))


def blocks(values: Sequence[float], count: int = 8) -> list[float]:
    """The means of `count` consecutive blocks: workers deliver in bursts, so single steps say little."""
    count = min(count, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def script_loaders(look: ScriptLook) -> tuple[ScriptLoader, ...]:
    """The loaders that the script itself builds, in the form of a profile."""
    return tuple(
        ScriptLoader(
            at=loader.place,
            key=loader.key,
            role="training" if look.training is not None and loader.key == look.training.key else "other",
            through=None if loader.through == "torch" else loader.through,
            batch_size=loader.batch_size or None,
            num_workers=loader.num_workers,
            prefetch_factor=loader.prefetch_factor,
            pin_memory=loader.pin_memory,
            persistent_workers=loader.persistent_workers,
        )
        for loader in look.loaders
    )


def _precision(autocast: str | None, parameters: str) -> str:
    """'bf16', 'fp16' or 'fp32': the format of autocast, else of the parameters."""
    text = autocast or parameters
    return "bf16" if "bfloat16" in text else "fp16" if "float16" in text or "half" in text else "fp32"
