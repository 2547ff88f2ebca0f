"""Turns decisions into a job: first the live objects, then the loop with everything that it uses."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from gpudoc.train.data.draws import Generators, seed_all
from gpudoc.train.data.feed import Feeds, LoaderSettings
from gpudoc.train.data.order import Order, sample_seed
from gpudoc.train.data.stream import eval_reader_of, length_of, reader_of
from gpudoc.train.events import Event
from gpudoc.train.job import Job, Origin
from gpudoc.train.loop.boundary import Boundary
from gpudoc.train.loop.census import Census
from gpudoc.train.loop.course import Course, Rescues
from gpudoc.train.loop.crash import Restart, take_over
from gpudoc.train.loop.evaluation import Evaluation
from gpudoc.train.loop.log import Log
from gpudoc.train.loop.loop import Fetcher, Loop, LoopParts
from gpudoc.train.loop.rescue import Rescuer, RescueRules
from gpudoc.train.loop.saving import Saving
from gpudoc.train.loop.snapshot import Snapshots
from gpudoc.train.loop.trace import Tracer
from gpudoc.train.ranks.fsdp import council_of
from gpudoc.train.ranks.protocol import Ranks
from gpudoc.train.report.sinks import NoSinks, Sinks, open_extra
from gpudoc.train.request import TrainRequest
from gpudoc.train.settings import TrainSettings
from gpudoc.train.start.parts import build_parts, form_of
from gpudoc.train.start.profiles import RunProfile
from gpudoc.train.state.capture import RunProgress
from gpudoc.train.state.run_dir import Run, RunChoice
from gpudoc.train.state.staging import Staging
from gpudoc.train.state.writer import Writer
from gpudoc.train.step.precision import Precision
from gpudoc.train.step.schedule import Rates
from gpudoc.train.step.step import Stepper
from gpudoc.train.stop import Stop
from gpudoc.workload.build import Workload, data_fingerprint, model_fingerprint


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """All decisions, before any large object is built."""

    request: TrainRequest
    stop: Stop
    ranks: Ranks
    workload: Workload
    settings: TrainSettings
    precision: Precision
    device: torch.device
    choice: RunChoice


@dataclass(frozen=True, kw_only=True)
class LiveParts:
    """The objects into which a checkpoint is loaded, and those that read the samples."""

    stepper: Stepper
    rates: Rates
    course: Course
    generators: Generators
    feeds: Feeds
    eval_feeds: Feeds | None
    constants: Mapping[str, object]


def make_live(decisions: Decisions, model: nn.Module) -> LiveParts:
    """All objects with state, as they are before the first step."""
    settings, workload, device, ranks = decisions.settings, decisions.workload, decisions.device, decisions.ranks
    fingerprint = model_fingerprint(model)
    form = form_of(settings, decisions.precision, grad_clip=settings.grad_clip, lr=settings.lr)
    parts = build_parts(workload, model, form, device, ranks)
    # from here on the main generators belong to the model; every rank draws its own dropout masks
    seed_all(sample_seed(settings.seed, ranks.rank, -2))
    order = Order(
        num_samples=length_of(workload),
        global_batch=settings.global_batch,
        micro_batch=settings.micro_batch,
        seed=settings.seed,
        rank=ranks.rank,
        world=ranks.world,
        shuffled=not workload.is_stream,
    )
    loader = LoaderSettings(
        num_workers=settings.num_workers,
        prefetch_factor=settings.prefetch_factor,
        pin_memory=settings.pin_memory,
    )
    eval_reader = eval_reader_of(workload, settings.seed)
    progress = RunProgress(micro_batch=settings.micro_batch, activation_checkpointing=settings.activation_checkpointing)
    return LiveParts(
        stepper=Stepper(parts),
        rates=Rates(workload.config.schedule, parts.optimizer, settings.steps),
        course=Course(order=order, progress=progress, end_step=settings.steps),
        generators=Generators(device),
        feeds=Feeds(reader_of(workload, settings.seed), loader, decisions.stop),
        eval_feeds=None if eval_reader is None else Feeds(eval_reader, loader, decisions.stop),
        constants={
            "model_fingerprint": fingerprint,
            "data_fingerprint": data_fingerprint(workload.dataset),
            "num_samples": order.num_samples,
            "seed": settings.seed,
            "global_batch": settings.global_batch,
            "world": ranks.world,
            "precision": decisions.precision.name,
            "optimizer_state": settings.optimizer_state,
            "end_step": settings.steps,
        },
    )


def assemble(
    decisions: Decisions, live: LiveParts, origin: Origin, lesson: RunProfile | None
) -> Generator[Event, None, Job]:
    """Build the loop and all that it uses, for a run whose state is restored."""
    settings, workload, run, ranks = decisions.settings, decisions.workload, decisions.choice.run, decisions.ranks
    stepper, course, stop = live.stepper, live.course, decisions.stop
    sinks = _open_sinks(decisions)
    restart = Restart(folder=run.path, course=course, rescue=settings.rescue)
    rescues = Rescues(course=course, metrics=sinks, lesson=lesson)
    # before anything looks at the micro batch: it may be halved here
    yield from take_over(restart, ranks, rescues)
    writer = Writer(run.checkpoints, council=council_of(ranks) if ranks.is_sharded else None)
    saving = Saving(
        stepper=stepper,
        course=course,
        writer=writer,
        staging=Staging(decisions.device, ranks.local_world),
        generators=live.generators,
        constants=live.constants,
        place=live.feeds.place,
        write_rows=sinks.write,
        keep=settings.keep,
        saved_step=-1 if origin.resumed_from is None else course.progress.step,
    )
    evaluation = None
    if live.eval_feeds is not None and workload.eval_dataset is not None:
        evaluation = Evaluation(
            parts=stepper.parts,
            feeds=live.eval_feeds,
            dataset=workload.eval_dataset,
            rescues=rescues,
            restart=restart,
            stop=stop,
            patience=settings.early_stop,
        )
    rules = RescueRules(rescue=settings.rescue, may_recompute=settings.may_checkpoint_activations)
    stepper.meter.look_for_gaps()
    census = Census(stepper, course)
    every = {"checkpoint_every": settings.checkpoint_every, "eval_every": settings.eval_every}
    parts = LoopParts(
        fetcher=Fetcher(stepper.parts, live.feeds, restart, saving.give_way, persistent=settings.persistent_workers),
        rescuer=Rescuer(stepper.parts, rescues, rules, Snapshots(run.path, ranks.rank, stepper)),
        boundary=Boundary(saving, evaluation, **every),
        log=Log(stepper, course, sinks, lambda wall_s: stop.check_time(2 * writer.last_seconds + wall_s)),
        tracer=Tracer(run.path, decisions.request.trace_steps if ranks.rank == 0 else 0, census),
        stop=stop,
        restart=restart,
    )
    return Job(
        workload=workload,
        settings=settings,
        run=run,
        origin=origin,
        course=course,
        stepper=stepper,
        census=census,
        loop=Loop(stepper, live.rates, parts, settings.log_every),
        sinks=sinks,
        stop=stop,
    )


def _open_sinks(decisions: Decisions) -> Sinks:
    if decisions.ranks.rank != 0:
        return NoSinks()
    run: Run = decisions.choice.run
    values = {key: value for key, value, _ in decisions.settings.rows()}
    return Sinks(run, open_extra(decisions.request.log_to, run, values))
