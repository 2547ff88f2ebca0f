"""From a request to a job: device, preflight, profile, settings, run directory, model, checkpoint."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import nn

from gpudoc.errors import ExitCode
from gpudoc.process.allocator import missing_environment
from gpudoc.profile import store
from gpudoc.train import limits
from gpudoc.train.data.draws import Generators, seed_all
from gpudoc.train.data.feed import Feeds, LoaderSettings
from gpudoc.train.data.order import ENDLESS, Order, sample_seed
from gpudoc.train.data.stream import StreamReader, eval_reader_of, length_of, most_workers, reader_of
from gpudoc.train.events import Event, Finished, Said
from gpudoc.train.job import Job
from gpudoc.train.ranks.distributed import place_here, ranks_here
from gpudoc.train.ranks.fsdp import council_of, shard_if_needed
from gpudoc.train.ranks.protocol import Ranks, on_rank_0
from gpudoc.train.report.sinks import NoSinks, Sinks, open_extra
from gpudoc.train.request import Request
from gpudoc.train.settings import Settings, Surroundings, resolve
from gpudoc.train.start.identity import hardware_here, num_cpus, workload_key
from gpudoc.train.start.parts import Form, be_deterministic, build_parts
from gpudoc.train.start.preflight import Flight, check_device, collect_quickly, open_device
from gpudoc.train.start.profiles import Chosen, lasting, of_run
from gpudoc.train.start.profiles import choose as choose_profile
from gpudoc.train.start.room import is_taken, no_room
from gpudoc.train.state.capture import Progress, restore, restore_rng
from gpudoc.train.state.loaded import Loaded, load
from gpudoc.train.state.run_dir import Choice, Lock, Run, cut_metrics, identity, write_config
from gpudoc.train.state.run_dir import choose as choose_run
from gpudoc.train.state.staging import Staging
from gpudoc.train.state.writer import Writer
from gpudoc.train.step import schedule
from gpudoc.train.step.crash import take_over
from gpudoc.train.step.precision import Precision
from gpudoc.train.step.precision import choose as choose_precision
from gpudoc.train.step.schedule import Rates
from gpudoc.train.step.step import Stepper
from gpudoc.train.stop import Stop
from gpudoc.units import format_bytes
from gpudoc.workload import recompute
from gpudoc.workload.build import Workload, data_fingerprint, load_workload, model_fingerprint

Built = tuple[Job, Lock | None]


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """All decisions, before anything heavy is made."""

    request: Request
    stop: Stop
    ranks: Ranks
    workload: Workload
    settings: Settings
    precision: Precision
    device: torch.device
    choice: Choice


def build(request: Request, stop: Stop, ranks: Ranks | None = None) -> Generator[Event, None, Built | Finished]:
    """Everything that a run needs, said as it is found; `Finished` at once when the run has all its steps already.

    GpudocError when memory runs out meanwhile: no smaller batch would help.
    """
    workload = _load(request)
    flight = check_device(request.device, check=request.preflight, place=place_here(), shared=request.shared)
    yield from flight.said
    ranks = ranks or ranks_here(flight.device)
    if request.flags.get("deterministic", workload.config.train.deterministic):
        be_deterministic(torch.device(flight.device))
    open_device(flight, ranks, workload)
    try:
        return (yield from _build_on(flight, request, stop, ranks, workload))
    except Exception as problem:
        if not is_taken(problem):
            raise
        limit = request.memory_limit_bytes
        raise no_room(torch.device(flight.device), workload, collect_quickly, limit) from problem


def _build_on(
    flight: Flight, request: Request, stop: Stop, ranks: Ranks, workload: Workload
) -> Generator[Event, None, Built | Finished]:
    """The rest of `build`, on a device that works."""
    device = torch.device(flight.device)
    limit = yield from _limit_memory(request, device, ranks)
    model = workload.build_model()
    ranks, sentence = shard_if_needed(ranks, workload, model, limit)
    if sentence:
        yield Said(sentence)
    here, key = hardware_here(device, request.memory_limit_bytes, ranks.world), workload_key(workload, model)
    chosen = on_rank_0(ranks, lambda: choose_profile(request.profile, here, key))
    yield from (Said(sentence) for sentence in (chosen.sentence, *chosen.passed_over))
    around = Surroundings(
        num_samples=length_of(workload),
        world=ranks.world,
        device_type=device.type,
        num_cpus=max(1, num_cpus() // ranks.local_world),
        most_workers=most_workers(workload),
    )
    settings = resolve(request.flags, workload.config, chosen.profile, around)
    precision = choose_precision(settings.precision, device)
    settings = replace(settings, precision=precision.name)
    lasts = lasting(chosen.profile, settings, ranks.world, on_gpu=device.type == "cuda")
    yield from (Said(note) for note in (*settings.notes, *((lasts,) if lasts else ())))
    yield from _start_again(request, settings, device, ranks)
    fixed = identity(workload.config, {"seed": settings.seed, "global_batch": settings.global_batch})
    locks: list[Lock] = []

    def open_run() -> Choice:
        found = choose_run(workload.name, request.run_dir, _resume(request), fixed, settings.steps)
        if not found.finished:
            locks.append(Lock(found.run))
        return found

    choice = on_rank_0(ranks, open_run)
    if choice.finished:
        return _nothing_to_do(choice)
    yield from (Said(f"{bad.path.name} is not used: {bad.reason}", warning=True) for bad in choice.bad)
    plan = _Plan(
        request=request,
        stop=stop,
        ranks=ranks,
        workload=workload,
        settings=settings,
        precision=precision,
        device=device,
        choice=choice,
    )
    job = _make_job(plan, model)
    job.stages = [*flight.stages, _tune_stage(chosen)]
    job.profile_kind = chosen.kind
    job.teaches = chosen.kind in ("tuned", "preset")
    job.profile = of_run(settings, chosen.profile, here, key)
    yield from _scale_lr(plan, job)
    if choice.checkpoint is not None:
        yield from _go_on(plan, job, choice.checkpoint)
    if ranks.rank == 0:
        cut_metrics(choice.run, job.progress.step)
        write_config(choice.run, workload.config, fixed, workload.name)
        store.save(job.profile, choice.run.profile)
    job.sinks = _open_sinks(plan)
    yield from take_over(job)
    return job, locks[0] if locks else None


def _resume(request: Request) -> str:
    """What --resume means: ranks that are started again after a crash go on even where a new run was asked for."""
    place = place_here()
    is_again = place is not None and place.restarts > 0
    return "auto" if is_again and request.resume == "never" else request.resume


def _load(request: Request) -> Workload:
    """The workload, with the seed of a flag in place of the config's."""
    workload = load_workload(request.model)
    seed = request.flags.get("seed")
    if isinstance(seed, int):
        train = workload.config.train.model_copy(update={"seed": seed})
        workload.config = workload.config.model_copy(update={"train": train})
    return workload


def _start_again(request: Request, settings: Settings, device: torch.device, ranks: Ranks) -> Iterator[Event]:
    """Allocators read their environment when a process starts: with another one this process begins anew."""
    missing = missing_environment(settings.allocator, device.type)
    if not missing or not request.may_restart:
        return
    words = " ".join(f"{name}={value}" for name, value in missing.items())
    yield Said(f"starts again with the environment of the allocator {settings.allocator!r}: {words}")
    sys.stdout.flush()
    sys.stderr.flush()
    # together, or a rank that begins anew would meet the old selves of the others
    ranks.barrier()
    os.execve(sys.executable, [sys.executable, "-m", "gpudoc", *sys.argv[1:]], {**os.environ, **missing})  # noqa: S606


def _limit_memory(request: Request, device: torch.device, ranks: Ranks) -> Generator[Event, None, int | None]:
    """Live under the limit; returns what one process may use, None when that is not known."""
    limit = request.memory_limit_bytes
    if limit is None and device.type == "cpu":
        limit = limits.default_limit_bytes()
        if limit is not None:
            limit //= ranks.local_world
            yield Said(f"memory limit {format_bytes(limit)}: half of what is free; --memory-limit SIZE changes it")
    if limit is not None:
        limits.apply(limit, device)
        if device.type == "cuda":
            yield Said(f"memory limit {format_bytes(limit)} for tensors; CUDA's context and NCCL's buffers come on top")
    if limit is None and device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return limit


def _make_job(plan: _Plan, model: nn.Module) -> Job:
    settings, workload, device, ranks = plan.settings, plan.workload, plan.device, plan.ranks
    fingerprint = model_fingerprint(model)
    form = Form(
        precision=plan.precision,
        activation_checkpointing=settings.activation_checkpointing,
        channels_last=settings.channels_last,
        compile=settings.compile,
        fused=settings.fused,
        grad_clip=settings.grad_clip,
        lr=settings.lr,
    )
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
    return Job(
        workload=workload,
        settings=settings,
        run=plan.choice.run,
        ranks=ranks,
        stop=plan.stop,
        stepper=Stepper(parts),
        generators=Generators(device),
        order=order,
        feeds=Feeds(reader_of(workload, settings.seed), loader, plan.stop),
        eval_feeds=None if eval_reader is None else Feeds(eval_reader, loader, plan.stop),
        progress=Progress(micro_batch=settings.micro_batch, activation_checkpointing=settings.activation_checkpointing),
        writer=Writer(plan.choice.run.checkpoints, council=council_of(ranks) if ranks.is_sharded else None),
        staging=Staging(device, ranks.local_world),
        sinks=NoSinks(),
        constants={
            "model_fingerprint": fingerprint,
            "data_fingerprint": data_fingerprint(workload.dataset),
            "num_samples": order.num_samples,
            "seed": settings.seed,
            "global_batch": settings.global_batch,
            "world": ranks.world,
            "precision": plan.precision.name,
        },
        rates=Rates(workload.config.schedule, parts.optimizer, settings.steps),
        trace_steps=plan.request.trace_steps if ranks.rank == 0 else 0,
    )


def _scale_lr(plan: _Plan, job: Job) -> Iterator[Event]:
    """Scale the learning rate when the global batch grew by itself, and say so; a typed lr or batch stays."""
    settings = plan.settings
    grew_by_itself = settings.source("global_batch") == "default" and settings.lr is None
    if not grew_by_itself:
        return
    name = plan.workload.config.optimizer.target.partition(":")[2]
    factor, rule = schedule.batch_factor(settings.lr_scaling, name, settings.global_batch, settings.reference_batch)
    if factor == 1.0:
        return
    before = job.rates.base[0]
    job.rates.base = [lr * factor for lr in job.rates.base]
    yield Said(
        f"global batch {settings.reference_batch} -> {settings.global_batch} by itself, so the learning rate goes "
        f"{before:g} -> {job.rates.base[0]:g} ({rule} rule); train.lr_scaling: off in the config keeps it"
    )


def _go_on(plan: _Plan, job: Job, path: Path) -> Iterator[Event]:
    """Put the checkpoint into the job."""
    loaded = load(path, parts=plan.ranks.is_sharded)
    job.progress = restore(loaded, job.stepper, job.constants)
    job.resumed_from = path.name
    asked = plan.settings.source("micro_batch") == "flag"
    if job.progress.rescues and not asked:
        smaller = min(job.progress.micro_batch, job.order.micro_batch)
        job.order = job.order.with_micro_batch(smaller)
    job.progress.micro_batch = job.order.micro_batch
    if job.progress.activation_checkpointing and not plan.settings.activation_checkpointing:
        recompute.apply(job.stepper.parts.model)
    yield from _find_place(job, loaded)
    rng = loaded.rng(plan.ranks.rank)
    before = cast(int, loaded.state.get("world", 1))
    if rng is not None and before == plan.ranks.world:
        restore_rng(rng, job.generators)
    else:
        yield Said(
            f"{before} -> {plan.ranks.world} processes: the order of samples goes on, the dropout masks are others",
            warning=True,
        )
    yield Said(f"goes on from {path.name} of {plan.choice.run.path}")


def _find_place(job: Job, loaded: Loaded) -> Iterator[Event]:
    """Let a stream go on where the checkpoint was, or say what finding the place costs."""
    reader = job.feeds.reader
    if not isinstance(reader, StreamReader):
        return
    place = loaded.place()
    if place is not None:
        reader.go_to(place)
        return
    epoch, start, _ = job.order.span(job.progress.step)
    inside = f" of epoch {epoch}" if job.order.num_samples != ENDLESS else ""
    if start:
        yield Said(
            f"an iterable data set without a state_dict: its first {start} samples{inside} are read again and passed "
            "over; with state_dict and load_state_dict it would go on at once"
        )


def _open_sinks(plan: _Plan) -> Sinks:
    if plan.ranks.rank != 0:
        return NoSinks()
    run: Run = plan.choice.run
    values = {key: value for key, value, _ in plan.settings.rows()}
    return Sinks(run, open_extra(plan.request.log_to, run, values))


def _nothing_to_do(choice: Choice) -> Finished:
    import json

    summary = json.loads(choice.run.summary.read_text("utf-8"))
    reason = f"{choice.run.path} has all its steps; more: --steps N, anew: --resume never"
    return Finished(summary=summary, exit_code=ExitCode.OK, reason=reason, go_on=None)


def _tune_stage(chosen: Chosen) -> dict[str, object]:
    made = None if chosen.profile is None else chosen.profile.made
    stage: dict[str, object] = {"name": "tune", "device": None, "memory_peak_bytes": None}
    if made is None:
        return {**stage, "status": "skipped", "seconds": 0.0, "because": chosen.sentence}
    return {**stage, "status": "done before", "seconds": made.seconds, "because": chosen.sentence}
