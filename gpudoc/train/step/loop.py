"""The training loop as a stream of events. Between log points a step does nothing that waits for the device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.train.blame import in_data, in_model
from gpudoc.train.data.draws import Snapshot
from gpudoc.train.data.feed import DirectFeed, Feed
from gpudoc.train.data.order import Chunk
from gpudoc.train.events import Evaluated, Event, Progressed, Said, Started
from gpudoc.train.job import Job
from gpudoc.train.ranks.distributed import AbandonedError, UnusedError
from gpudoc.train.ranks.protocol import OOM, STOP
from gpudoc.train.step import schedule
from gpudoc.train.step.boundary import Boundary
from gpudoc.train.step.crash import leave_smaller_batch, leave_unused
from gpudoc.train.step.meters import Meter, Split, clock, memory_peak_bytes
from gpudoc.train.step.rescue import Rescuer
from gpudoc.train.step.step import Micro
from gpudoc.train.step.trace import Tracer
from gpudoc.train.step.undo import Undo
from gpudoc.workload.batch import Batch, shapes
from gpudoc.workload.memory import is_out_of_memory

# fp16 needs up to 17 skipped steps to find its first loss scale
_MOST_SKIPPED_IN_A_ROW = 25
_READ = "samples being read"


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a step has no samples, as ranks tell each other: a stop while waiting for them, or no memory to read them."""

    flags: int
    seen: str = ""
    told: str = ""


class Loop:
    """Drives one job from its step to its end, or to a stop."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._meter = Meter(job.stepper.parts.device)
        job.stepper.meter = self._meter
        self._undo = Undo(job.stepper.parts.model, job.stepper.parts.device)
        self._feed: Feed | None = None
        self._chunks: list[Chunk] = []
        self._lr_factor = -1.0
        self._on_host = job.stepper.parts.device.type == "cpu"
        chosen = job.workload.config.schedule
        self._lr_stays = chosen.name == "constant" and chosen.warmup_steps == 0
        self._boundary = Boundary(job, self._meter, self._undo)
        self._rescuer = Rescuer(job, self._undo)
        self._tracer = Tracer(job.run.path, job.trace_steps)
        self._samples_logged = job.order.samples_before(job.progress.step)
        self._skipped_in_a_row = 0
        self._skipped_logged = 0
        self._logged_step = job.progress.step
        self._total = Split(dict(job.progress.seconds)) if job.progress.seconds else None
        self.memory_peak_bytes = 0
        self._agreed_to_stop = False

    def events(self) -> Iterator[Event]:
        """Train, telling what happens; ends at the last step, at a stop, or raises with the state at a boundary."""
        job = self._job
        yield self._started()
        job.stepper.parts.model.train()
        self._meter.restart()
        try:
            while job.progress.step < job.end_step and not self._is_stopped():
                yield from self._step()
        except Exception:
            yield from self._save_what_there_is()
            raise
        finally:
            self._close_feed()
            self._tracer.close()
        yield from self._boundary.close()
        self._collect_split(self._meter.take())

    def _is_stopped(self) -> bool:
        """Whether all ranks know of a stop; one that was asked alone tells the others in the next vote."""
        return self._agreed_to_stop if self._job.ranks.world > 1 else self._job.stop.asked

    @property
    def last_evaluation(self) -> Evaluated | None:
        """The newest evaluation of this process."""
        return self._boundary.last_evaluation

    def _step(self) -> Iterator[Event]:
        """One step, and what is due after it; a step that ran out of memory is undone and the rescue told."""
        job, stepper, meter, undo = self._job, self._job.stepper, self._meter, self._undo
        progress, ranks = job.progress, job.ranks
        # before the next samples are read: memory among theirs that gradients keep makes the heap grow around it
        stepper.free_gradients()
        began = clock()
        found = self._fetch(progress.step)
        fetched = clock()
        meter.wait(fetched - began)
        undo.mark(self._snapshot())
        if not isinstance(found, Missing):
            flags = self._backward(found)
        elif found.flags == STOP and ranks.world == 1:
            return
        else:
            flags = found.flags
        try:
            if ranks.world > 1:
                flags = ranks.vote(flags | (STOP if job.stop.asked else 0))
            if not flags:
                self._set_lr(progress.step)
                flags = self._rescuer.update()
        except UnusedError:
            leave_unused(job)
            raise
        except AbandonedError:
            leave_smaller_batch(job, _seen(found))
            raise
        if flags & STOP:
            undo.back()
            self._agreed_to_stop = True
            job.stop.ask("another rank was asked to stop", ExitCode.RESUME)
            return
        meter.compute += clock() - fetched
        if flags & OOM:
            meter.step_failed()
            self._close_feed()
            if self._boundary.give_way():
                undo.back()
                yield from self._boundary.tell()
            else:
                yield from self._rescuer.shrink(_seen(found), found.told if isinstance(found, Missing) else "")
            return
        meter.step_done()
        progress.step += 1
        for chunk in self._chunks:
            # numbers only, so the hash is the same in every process; a resumed run must read the same samples
            progress.samples_digest = hash((progress.samples_digest, chunk.indices))
        if self._tracer.wanted:
            yield from self._tracer.advance()
        if progress.step >= self._boundary.due_at or progress.step % job.settings.log_every == 0:
            yield from self._after(progress.step)

    def _backward(self, micros: list[Micro]) -> int:
        """The step's gradients; OOM when there was no memory for them."""
        job = self._job
        try:
            job.stepper.backward(micros)
        except Exception as problem:
            if not is_out_of_memory(problem):
                raise in_model(problem, micros[0].batch, job.progress.step == 0) from problem
            return self._rescuer.note(problem)
        return 0

    def _fetch(self, step: int) -> list[Micro] | Missing:
        """The step's micro batches on the host with their shares of the loss, or why any rank is without them."""
        job = self._job
        feed = self._open_feed(step)
        chunks = self._chunks = job.order.chunks(step)
        batches: list[Batch] = []
        missing = None
        for chunk in chunks:
            taken = self._take(feed, chunk)
            if isinstance(taken, Missing):
                missing = taken
                batches.clear()
                break
            batches.append(taken)
        if job.ranks.world == 1 and missing is not None:
            return missing
        if job.ranks.world == 1 and len(chunks) == 1:
            return [Micro(batches[0], 1.0)]
        return self._share(chunks, batches, missing)

    def _share(self, chunks: list[Chunk], batches: list[Batch], missing: Missing | None) -> list[Micro] | Missing:
        """Each micro batch with its share of the items of all ranks, which learn here of one without samples: before a
        backward that it would not come to, and in which the others' collectives would wait for it."""
        count = self._job.stepper.parts.step.count_items
        # the batches of a rank that misses one are gone
        read = zip(chunks, batches, strict=missing is None)
        items = [0.0 if chunk.weightless else float(count(batch)) for chunk, batch in read]
        flags = missing.flags if missing else 0
        try:
            sums = self._job.ranks.total([sum(items), float(flags == STOP), float(flags == OOM)])
        except AbandonedError:
            leave_smaller_batch(self._job, _READ)
            raise
        if sums[1] or sums[2]:
            return missing or Missing(STOP if sums[1] else OOM, _READ)
        return [Micro(b, n * self._job.ranks.world / sums[0]) for b, n in zip(batches, items, strict=True)]

    def _take(self, feed: Feed, chunk: Chunk) -> Batch | Missing:
        """The chunk's batch; read once more when memory for it was missing beside a checkpoint."""
        try:
            batch = feed.take(chunk)
        except Exception as problem:
            told = in_data(problem, chunk.indices)
            if not is_out_of_memory(problem):
                raise told from problem
            short = Missing(OOM, f"{_READ}, {len(chunk.indices)} at once", told.message)
        else:
            return Missing(STOP) if batch is None else batch
        if isinstance(feed, DirectFeed) and self._boundary.give_way():
            return self._take(feed, chunk)
        return short

    def _open_feed(self, step: int) -> Feed:
        """The loader at `step`. One set of workers serves all epochs, unless they are asked not to persist."""
        job, end = self._job, self._job.end_step
        if job.settings.num_workers and not job.settings.persistent_workers:
            epoch, first = divmod(step, job.order.steps_per_epoch)
            end = min(end, (epoch + 1) * job.order.steps_per_epoch)
            if first == 0:
                self._close_feed()
        if self._feed is None:
            self._feed = job.feeds.open(job.order, step, end)
        return self._feed

    def _snapshot(self) -> Snapshot | None:
        """The random state that the loader just took; it knows nothing of a GPU's."""
        return self._feed.snapshot if self._on_host and isinstance(self._feed, DirectFeed) else None

    def _set_lr(self, step: int) -> None:
        job = self._job
        if self._lr_stays and self._lr_factor > 0:
            return
        factor = schedule.factor(job.workload.config.schedule, step, job.end_step)
        if factor == self._lr_factor:
            return
        self._lr_factor = factor
        for group, base in zip(job.stepper.parts.optimizer.param_groups, job.base_lrs, strict=True):
            lr = base * factor
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr

    def _after(self, step: int) -> Iterator[Event]:
        job = self._job
        if step % job.settings.log_every == 0 or step == job.end_step:
            yield self._log(step)
        yield from self._boundary.act(step)

    def _log(self, step: int) -> Progressed:
        job, stepper = self._job, self._job.stepper
        losses = stepper.take_losses()
        if job.ranks.world > 1:
            losses = [loss / job.ranks.world for loss in job.ranks.total(losses)]
        finite = [loss for loss in losses if math.isfinite(loss)]
        loss = sum(finite) / len(finite) if finite else math.nan
        if finite:
            job.progress.final_loss = finite[-1]
            if job.progress.first_loss is None:
                job.progress.first_loss = finite[0]
        grad_norm = stepper.norm_of_gradients()
        split = self._meter.take()
        self._collect_split(split)
        samples = job.order.samples_before(step)
        skipped = stepper.num_skipped() - self._skipped_logged
        self._count_skipped(skipped, step - self._logged_step, step)
        record = Progressed(
            step=step,
            end_step=job.end_step,
            epoch=None if job.order.is_endless else samples / job.order.num_samples,
            samples=samples,
            loss=loss,
            lr=float(stepper.parts.optimizer.param_groups[0]["lr"]),
            samples_per_s=(samples - self._samples_logged) / split.wall_s if split.wall_s > 0 else 0.0,
            split=split,
            memory_peak_bytes=self.memory_peak_bytes,
            grad_norm=grad_norm,
            scale=stepper.scale(),
            num_skipped=skipped,
        )
        self._samples_logged, self._logged_step = samples, step
        job.sinks.add(record.document())
        job.stop.check_time(2 * job.writer.last_seconds + split.wall_s)
        return record

    def _count_skipped(self, skipped: int, steps: int, step: int) -> None:
        job = self._job
        self._skipped_logged += skipped
        job.progress.num_skipped += skipped
        self._skipped_in_a_row = self._skipped_in_a_row + skipped if skipped == steps else 0
        never = job.progress.num_skipped == step
        if self._skipped_in_a_row >= _MOST_SKIPPED_IN_A_ROW or (never and step == job.end_step):
            since = "from the first step on" if never else f"for {self._skipped_in_a_row} steps"
            raise GpudocError(
                f"the gradients are not finite {since} (step {step}): nothing is learned",
                hint="--set lr=SMALLER, --precision fp32, train.grad_clip in the config, or look for NaN in the data",
                exit_code=ExitCode.BAD_ANSWER,
            )

    def _collect_split(self, split: Split) -> None:
        self._total = split if self._total is None else self._total + split
        self._job.progress.seconds = dict(self._total.seconds)
        self.memory_peak_bytes = memory_peak_bytes(self._job.stepper.parts.device)

    def _close_feed(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _save_what_there_is(self) -> Iterator[Event]:
        """After a failure: the state of the last boundary, unless an update was torn or saving fails as well."""
        alone = self._job.ranks.world == 1
        if self._rescuer.torn or not alone or self._job.progress.step == 0:
            # a rank that failed cannot ask the others to save with it; the last checkpoint is where they go on
            self._job.writer.collect(wait=True)
            return
        try:
            self._undo.back()
            yield from self._boundary.close()
        except Exception as problem:
            # the error that ended the run is the one to tell; after some of them the device answers nothing any more
            yield Said(f"the last state could not be saved: {str(problem).splitlines()[0]}", warning=True)

    def _started(self) -> Started:
        job = self._job
        parts = job.stepper.parts
        return Started(
            name=job.workload.name,
            run_dir=job.run.path,
            device=str(parts.device),
            settings=job.settings,
            num_parameters=sum(p.numel() for p in parts.model.parameters()),
            num_samples=None if job.order.is_endless else job.order.num_samples,
            steps_per_epoch=None if job.order.is_endless else job.order.steps_per_epoch,
            step=job.progress.step,
            end_step=job.end_step,
            world=job.ranks.world,
            resumed_from=job.resumed_from,
        )


def _seen(found: list[Micro] | Missing) -> str:
    """What the step had in hand, as shapes."""
    return found.seen if isinstance(found, Missing) else shapes(found[0].batch)


def note_of_syncs(job: Job) -> list[Said]:
    """What is said at the start when the optimizer cannot skip a bad step on the device."""
    if not job.stepper.syncs_every_step:
        return []
    name = type(job.stepper.parts.optimizer).__name__
    return [Said(f"{name} has no fused form here: every step waits once for the device to see whether it was finite")]
