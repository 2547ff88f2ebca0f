"""The process of one rank of a trial: it runs the requested steps and reports each measurement."""

from __future__ import annotations

import functools
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from gpudoc.process.memory import read_process_memory
from gpudoc.process.stacks import num_threads, stack_bytes
from gpudoc.profile.model import Loader
from gpudoc.train import limits
from gpudoc.train.ranks.protocol import STOP, Alone, Ranks
from gpudoc.tune.child import rank
from gpudoc.tune.child.first_steps import FirstSteps
from gpudoc.tune.child.heartbeat import beat_while_compiling
from gpudoc.tune.child.likeness import tell_alike
from gpudoc.tune.child.pace import StepPace, steps_per_block
from gpudoc.tune.child.samples import Samples, Shuffled, endless, make_loader
from gpudoc.tune.child.scaling import RankStand, measure_legs, ready
from gpudoc.tune.child.training import Trainee
from gpudoc.tune.model.memory import growth_per_step, is_roomy, is_still, next_calibration_batch
from gpudoc.tune.trial.failure import describe_failure
from gpudoc.tune.trial.messages import End, Point, TrialRequest
from gpudoc.tune.trial.wire import BatchMeasured, Emit, Fact, LifeSign, RankEnd, RankPlace, TrialStage, Waiting
from gpudoc.units import MIB
from gpudoc.workload.batch import Batch
from gpudoc.workload.build import Workload

_MIN_TIMED_STEPS = 3
_MAX_TIMED_BLOCKS = 60
# extra memory of training: packages of the command line and the screen (2.2 MiB of private memory, 2026-11-21), the
# threads that draw and that look for a hang (1 MiB each), and a reserve
_COMMAND_LINE_BYTES = 6 * MIB
# on a CPU the same step needs 1 MiB more or less from process to process, and its heap grows by 1 to 2 MiB after step
# 20 (a conv net without AVX, three runs, 2026-11-24): a batch that runs with this much held keeps running without it
_WANDERING_BYTES = 2 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Data that the fork server reads once for all trials: the workload, its samples and those of its eval set.

    `num_threads` is the number of torch's threads; `num_started` counts all threads of the process that read the data.
    """

    workload: Workload
    samples: Samples
    eval_samples: Samples | None
    num_threads: int
    num_started: int = 1

    @property
    def kept_bytes(self) -> int:
        """Bytes in each trial of the samples that are kept between trials."""
        return sum(samples.kept_bytes for samples in (self.samples, self.eval_samples) if samples is not None)

    @property
    def left_bytes(self) -> int:
        """Stack bytes of threads that a fork does not keep, but that training has in addition to those of its steps.

        NumPy's OpenBLAS starts one for each CPU except the first at import, and ends them before every fork.
        """
        return max(0, self.num_started - num_threads()) * stack_bytes()


class ProbeStoppedError(Exception):
    """The trial ended without an exception in the user's code: a leak, or an allocator that retried."""

    def __init__(self, end: End, detail: str) -> None:
        super().__init__(detail)
        self.end = end
        self.detail = detail


@dataclass(slots=True)
class _Step:
    """One optimizer step's data: training fetches all of it before the first micro batch runs."""

    micros: list[Batch]
    held: Batch = None


class Probe:
    """One process's part in a trial; `emit` takes stages, points and facts as they come."""

    def __init__(self, prepared: Prepared, request: TrialRequest, place: RankPlace, emit: Emit) -> None:
        self._prepared = prepared
        self._request = request
        self._place = place
        self._emit = emit
        self._device = rank.take_device(place)
        self._started = time.monotonic()
        self._left_out = False
        if request.variant.compile:
            beat_while_compiling(emit, self._is_over)
        self._slack = bytearray(_WANDERING_BYTES if self._device.type == "cpu" else 0)
        self._stage("build")
        self._ranks: Ranks = rank.join(request, place) if request.ranks > 1 else Alone()
        self._trainee = Trainee(prepared.workload, request.variant, self._device, self._ranks)
        # DDP rebuilds its buckets after the first backward in which it reduces
        self._warm = 2 if self._ranks.world == 1 or self._device.type == "cpu" else 3
        self._pace = StepPace(trainee=self._trainee, ranks=self._ranks, emit=emit)

    def run(self) -> None:
        """Run the steps of the request's kind; raises the errors of those steps, and ProbeStoppedError."""
        match self._request.kind:
            case "calibrate":
                self._calibrate()
            case "alike":
                self._stage("alike", self._request.batches[0])
                tell_alike(self._trainee, self._prepared.samples, self._request, self._emit, self._is_over)
            case "fit":
                self._fit(self._request.batches[0])
            case "steady":
                self._measure(self._request.batches[0], 2, whole=True)
                self._settle(self._request.batches[0], self._request.steps, self._request.enough)
            case "default" | "joint" if self._request.feed is not None:
                self._feed(self._request.batches[0], self._request.feed)
            case "variant":
                self._first_steps(self._request.batches[0])
                self._time()
            case "scaling":
                self._scale(self._request.batches[0])
            case _:
                self._time()

    def _calibrate(self) -> None:
        limit_bytes = self._place.limit_bytes or 0
        cap = min(self._place.cap, self._request.batches[0])
        points: list[Point] = []
        while (batch := next_calibration_batch(points, limit_bytes, cap)) is not None:
            if points and self._is_too_slow(points[-1], batch):
                return
            num_steps = 2 if not points else 1
            points.append(self._measure(batch, num_steps))

    def _is_too_slow(self, last: Point, batch: int) -> bool:
        """Whether a step at `batch` would end after the trial's time, if it is as slow per sample as the last one."""
        expected = (last.seconds or 0.0) * batch / last.batch
        return self._agreed(time.monotonic() - self._started + expected > self._place.stop_s)

    def _fit(self, batch: int) -> None:
        self._measure(batch, self._request.steps, whole=True)
        if self._request.stay:
            self._wait()
            if self._left_out:
                self._meet_other_batches(batch)
                self._timed_step(self._worst_step(batch))
            num_steps, enough = map(int, Path(self._place.orders).read_text().split())
            self._settle(batch, num_steps, enough)

    def _measure(self, batch: int, num_steps: int, *, whole: bool = False) -> Point:
        """Run steps on the worst samples; the point is reported at once, so that a later crash does not lose it.

        With `whole`, the other batches of a training follow the first step, since their memory may stay allocated. They
        are left out if the process can run them later and has much room: such a batch is not the largest.
        """
        self._stage("train", batch)
        self._reset_peak()
        seconds, before = [], self._resting_bytes()
        for count in range(num_steps):
            if whole and count == 1:
                may = self._request.stay and self._request.ranks == 1 and batch < self._place.cap
                self._left_out = may and is_roomy(self._point(batch, ()), before, self._place.limit_bytes or 0)
                if not self._left_out:
                    self._meet_other_batches(batch)
                self._trainee.end_probation()
                self._stage("train", batch)
            if self._left_out and count > 1:
                break
            seconds.append(self._timed_step(self._worst_step(batch)))
        point = self._point(batch, tuple(seconds[-1:]))
        self._emit(BatchMeasured(point=point))
        return point

    def _meet_other_batches(self, batch: int) -> None:
        """The last partial batch of an epoch, and an eval batch: other shapes, so other kernels and workspaces."""
        samples = self._prepared.samples
        partial = samples.count % batch
        if partial:
            self._stage("partial batch", batch)
            self._trainee.train([samples.worst(partial)])
        self._stage("eval", batch)
        evaluated = self._prepared.eval_samples or samples
        samples.let_go()
        self._trainee.evaluate(evaluated.worst(batch))
        evaluated.let_go()

    def _settle(self, batch: int, num_steps: int, enough: int) -> None:
        """Run a checkpoint and more steps, as training does; `enough` still steps end it, the checkpoint's included."""
        self._stage("checkpoint", batch)
        self._trainee.capture_checkpoint()
        with self._trainee.writing_checkpoint():
            self._timed_step(self._worst_step(batch))
        if self._place.rank == 0:
            self._emit(Fact(name="settled", value=1))
        self._stage("steady", batch)
        retries_before = self._retries()
        sizes: list[int] = []
        beside = self._resting_bytes()
        for _ in range(num_steps):
            if any(is_still(series, enough, self._room_bytes()) for series in ([beside, *sizes], sizes)):
                break
            self._timed_step(self._worst_step(batch))
            sizes.append(self._resting_bytes())
            self._emit(LifeSign())
        self._emit(Fact(name="steady_steps", value=len(sizes)))
        self._check_growth(sizes, retries_before)

    def _check_growth(self, sizes: list[int], retries_before: int) -> None:
        growth = growth_per_step(sizes)
        self._emit(Fact(name="growth_bytes_per_step", value=growth))
        if growth:
            raise ProbeStoppedError(End.LEAK, f"memory grows by {growth / 2**20:.2f} MiB with every step")
        if self._retries() > retries_before:
            raise ProbeStoppedError(
                End.ALLOCATOR_RETRY, "the allocator had to free its cache and retry: steps are slow here"
            )

    def _first_steps(self, batch: int) -> None:
        """The losses of the first steps, from the same weights on the same samples in every trial."""
        self._stage("first steps", batch)
        made = ready(self._prepared.samples, batch, pinned=self._device.type == "cuda")
        FirstSteps(self._trainee, self._emit, self._agreed).run(made, self._request, self._prepared.workload)

    def _time(self) -> None:
        """Timed steps on typical samples: all batches upward, then downward, since jitter comes and goes."""
        self._trainee.end_probation()
        timed: dict[int, list[float]] = {batch: [] for batch in self._request.batches}
        for round_, order in enumerate((self._request.batches, self._request.batches[::-1])):
            for batch in order:
                if self._is_late() and timed[batch]:
                    continue
                self._stage("speed", batch)
                self._reset_peak()
                made = ready(self._prepared.samples, batch, pinned=self._device.type == "cuda")
                warm = 1 if round_ else self._warm
                timed[batch] += self._time_steps(functools.partial(self._trainee.step, [made]), warm)
                point = self._point(batch, tuple(timed[batch]))
                self._emit(BatchMeasured(point=point))

    def _time_steps(self, step: Callable[[], None], warm: int) -> list[float]:
        step_s = self._pace.warm_up(step, warm)
        return self._time_blocks(step, self._block(step_s), self._request.seconds_per_batch / 2)

    def _block(self, step_s: float) -> int:
        """Steps between two readings of the clock: many on a GPU, since each reading waits for it."""
        return steps_per_block(step_s) if self._device.type == "cuda" else 1

    def _time_blocks(self, step: Callable[[], None], count: int, budget_s: float, least: int = 1) -> list[float]:
        """Seconds per step of blocks of `count` steps; `budget_s` does not end them before `least` steps."""
        blocks: list[float] = []
        most = _MAX_TIMED_BLOCKS if self._request.feed is None else 10 * _MAX_TIMED_BLOCKS
        while len(blocks) * count < least or not self._agreed(sum(blocks) * count >= budget_s or len(blocks) >= most):
            blocks.append(self._pace.time(step, count))
            if self._is_late():
                break
        return blocks

    def _is_late(self) -> bool:
        return self._agreed(self._is_over())

    def _is_over(self) -> bool:
        return time.monotonic() - self._started > self._place.stop_s

    def _agreed(self, mine: bool) -> bool:
        """Whether any rank says so: all ranks must run the same number of steps, since every step is collective."""
        return bool(self._ranks.vote(STOP if mine else 0))

    def _scale(self, batch: int) -> None:
        """Time the step with and without loading, gradient exchange and H2D copies; the point holds the whole step."""
        self._stage("scaling", batch)
        self._reset_peak()
        stand = RankStand(
            workload=self._prepared.workload,
            samples=self._prepared.samples,
            trainee=self._trainee,
            ranks=self._ranks,
            request=self._request,
            emit=self._emit,
            is_over=self._is_over,
        )
        legs = measure_legs(stand)
        self._emit(BatchMeasured(point=self._point(batch, legs["loaded"]), legs=legs))

    def _feed(self, batch: int, feed: Loader) -> None:
        """Time steps fed by a real loader; batches that workers prefetched before the clock started do not count."""
        self._slack = bytearray(0)
        self._stage("speed", batch)
        self._reset_peak()
        self._trainee.end_probation()
        order = Shuffled(self._trainee.order, self._place.rank, self._ranks.world)
        loader = iter(endless(make_loader(self._prepared.workload, order, batch, feed)))
        ahead = max(1, feed.num_workers * feed.prefetch_factor)

        def step() -> None:
            self._trainee.step([next(loader)])

        step_s = 0.0
        for _ in range(max(self._warm, ahead)):
            step_s = self._pace.time(step, 1)
            if self._is_late():
                ahead = 1
                break
        # workers hand over their ready batches in a burst and then the step waits: a block holds a whole burst
        count, least = max(ahead, self._block(step_s)), max(_MIN_TIMED_STEPS, ahead)
        blocks = self._time_blocks(step, count, self._request.seconds_per_batch, least)
        point = self._point(batch, tuple(blocks))
        self._emit(BatchMeasured(point=point))

    def _timed_step(self, step: _Step) -> float:
        """Seconds per micro batch of one optimizer step."""
        start = time.perf_counter()
        self._trainee.train(step.micros)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return (time.perf_counter() - start) / len(step.micros)

    def _worst_step(self, batch: int) -> _Step:
        """The longest samples for one step: micro batches to run, and the rest of the global batch, kept in RAM."""
        worst, request = self._prepared.samples.worst, self._request
        count = request.num_micros(batch)
        rest = request.accumulate_below // request.ranks - count * batch if count > 1 else 0
        held = worst(rest) if rest > 0 and self._device.type == "cpu" else None
        return _Step([worst(batch) for _ in range(count)], held)

    def _wait(self) -> None:
        """Rest until the parent sends SIGUSR1 to go on; it kills the process otherwise."""
        self._emit(Waiting())
        signal.sigwait({signal.SIGUSR1})

    def _stage(self, name: str, batch: int | None = None) -> None:
        self._emit(TrialStage(stage=name, batch=batch))

    def _reset_peak(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)

    def _point(self, batch: int, seconds: tuple[float, ...]) -> Point:
        if self._device.type == "cuda":
            peak, rest = torch.cuda.max_memory_reserved(self._device), torch.cuda.memory_allocated(self._device)
        else:
            memory = read_process_memory()
            peak, rest = memory.peak_data_bytes, memory.data_bytes
        # the worst rank decides; all have the same point, so that all go on with the same batch
        told = self._ranks.gather((peak, rest, self._retries(), seconds))
        return Point(
            batch=batch,
            peak_bytes=max(row[0] for row in told),
            rest_bytes=max(row[1] for row in told),
            retries=max(row[2] for row in told),
            step_s=max((row[3] for row in told), key=sum),
        )

    def _room_bytes(self) -> int:
        """Bytes between this process's peak and its limit, on a CPU, where heap movements are visible; 0 otherwise."""
        if self._device.type == "cuda" or self._place.limit_bytes is None:
            return 0
        return self._place.limit_bytes - read_process_memory().peak_data_bytes

    def _resting_bytes(self) -> int:
        if self._device.type == "cuda":
            return int(torch.cuda.memory_allocated(self._device))
        return read_process_memory().data_bytes

    def _retries(self) -> int:
        if self._device.type != "cuda":
            return 0
        return int(torch.cuda.memory_stats(self._device).get("num_alloc_retries", 0))


def run_probe(prepared: Prepared, request: TrialRequest, place: RankPlace, emit: Emit) -> None:
    """Run one process's part of a trial to its end; every outcome becomes an `end` event."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        torch.set_num_threads(rank.num_threads(request, prepared.num_threads))
        # steps that read the data set need memory in addition to the kept samples
        besides = prepared.kept_bytes if request.feed is not None and place.device == "cpu" else 0
        if place.limit_bytes is not None:
            limits.enforce(place.limit_bytes + besides, torch.device(place.device))
        held = bytearray(_COMMAND_LINE_BYTES + prepared.left_bytes if place.device == "cpu" else 0)
        Probe(prepared, request, place, emit).run()
        del held
    except ProbeStoppedError as ended:
        emit(RankEnd(end=ended.end, detail=ended.detail))
    except Exception as problem:
        failure = problem if request.ranks == 1 else rank.own_failure(problem)
        if failure is None:
            rank.wait_to_be_killed()
        else:
            emit(describe_failure(failure))
    else:
        emit(RankEnd())
