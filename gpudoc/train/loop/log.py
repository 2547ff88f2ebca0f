"""The figures of a log point: loss, speed, memory, the split of the time, and skipped steps."""

from __future__ import annotations

import math
from collections.abc import Callable

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.train.events import NothingLearnedError, Progressed
from gpudoc.train.loop.course import Course, Metrics
from gpudoc.train.meter.meters import Split, memory_peak_bytes
from gpudoc.train.ranks.condition import RankCondition
from gpudoc.train.ranks.pace import RankPace
from gpudoc.train.step.sequence import LogReading
from gpudoc.train.step.step import Stepper
from gpudoc.train.step.utilisation import figures, peak_of

# a query of the system's peak memory between two steps takes 20 us, one of the GPU's allocator more
_LOOK_S = 0.5
# fp16 needs up to 17 skipped steps to find its first loss scale
_MOST_SKIPPED_IN_A_ROW = 25


class Log:
    """Turns readings of log points into rows. `logged` is called with the seconds since the previous row."""

    def __init__(self, stepper: Stepper, course: Course, metrics: Metrics, logged: Callable[[float], None]) -> None:
        self._stepper = stepper
        self._peak = peak_of(stepper.parts.device, stepper.parts.precision.name)
        self._course = course
        self._metrics = metrics
        self._logged = logged
        self._samples_logged = course.order.samples_before(course.progress.step)
        self._logged_step = course.progress.step
        self._skipped_in_a_row = 0
        self._skipped_logged = 0
        self._unlooked_s = math.inf
        self.memory_peak_bytes = 0
        ranks, own = stepper.parts.ranks, RankCondition(stepper.parts.device)
        self.pace = RankPace(ranks.world, lambda rank: ranks.gather(own.look() if rank == ranks.rank else {})[rank])

    def write(self, step: int, reading: LogReading) -> Progressed:
        """Write and return the row after `step`; GpudocError if no gradient was finite for too long."""
        stepper, order, progress = self._stepper, self._course.order, self._course.progress
        finite = [loss for loss in reading.losses if math.isfinite(loss)]
        loss = sum(finite) / len(finite) if finite else math.nan
        if finite:
            progress.final_loss = finite[-1]
            if progress.first_loss is None:
                progress.first_loss = finite[0]
        split, wall_s = reading.split, reading.split.wall_s
        self._add(split)
        self._unlooked_s += wall_s
        if self._unlooked_s >= _LOOK_S:
            self._look()
        samples = order.samples_before(step)
        skipped = stepper.num_skipped() - self._skipped_logged
        self._count_skipped(skipped, step)
        record = Progressed(
            step=step,
            end_step=self._course.end_step,
            epoch=None if order.is_endless else samples / order.num_samples,
            samples=samples,
            loss=loss,
            lr=float(stepper.parts.optimizer.param_groups[0]["lr"]),
            samples_per_s=(samples - self._samples_logged) / wall_s if wall_s > 0 else 0.0,
            split=split,
            memory_peak_bytes=self.memory_peak_bytes,
            grad_norm=reading.grad_norm,
            scale=stepper.scale(),
            num_skipped=skipped,
            use=self._used(samples - self._samples_logged, split),
            slow=self.pace.take(step - self._logged_step, reading.own),
        )
        self._samples_logged, self._logged_step = samples, step
        self._metrics.add(record.document())
        self._logged(wall_s)
        return record

    def used(self) -> dict[str, float | str | None]:
        """The figures of the whole run, including resumes, with the values behind them."""
        progress = self._course.progress
        used = self._used(self._course.order.samples_before(progress.step), Split.of(progress.seconds))
        peak = {"peak_tflops": self._peak.tflops, "peak_from": self._peak.source}
        return {**used, "model_flops_per_sample": self._stepper.cost.model_flops, **peak}

    def _used(self, samples: int, split: Split) -> dict[str, float]:
        return figures(self._stepper.cost, self._peak, samples, split, self._stepper.parts.ranks.world)

    def end(self, split: Split) -> None:
        """Add the time after the last row, and read the peak of memory."""
        self._add(split)
        self._look()

    def _add(self, split: Split) -> None:
        total = self._course.progress.seconds
        for phase, seconds in split.seconds.items():
            total[phase] = total.get(phase, 0.0) + seconds

    def _look(self) -> None:
        self.memory_peak_bytes = max(self._stepper.meter.peak_bytes, memory_peak_bytes(self._stepper.parts.device))
        self._unlooked_s = 0.0

    def _count_skipped(self, skipped: int, step: int) -> None:
        progress = self._course.progress
        self._skipped_logged += skipped
        progress.num_skipped += skipped
        self._skipped_in_a_row = self._skipped_in_a_row + skipped if skipped == step - self._logged_step else 0
        never = progress.num_skipped == step
        if self._skipped_in_a_row >= _MOST_SKIPPED_IN_A_ROW or (never and step == self._course.end_step):
            since = "from the first step on" if never else f"for {self._skipped_in_a_row} steps"
            is_narrow = self._stepper.parts.precision.name != "fp32"
            raise (NothingLearnedError if never else GpudocError)(
                f"the gradients are not finite {since} (step {step}), so the model learns nothing",
                hint=f"--set lr=SMALLER, {'--precision fp32, ' if is_narrow else ''}train.grad_clip in the config, "
                "or look for NaN in the data",
                exit_code=ExitCode.BAD_ANSWER,
            )
