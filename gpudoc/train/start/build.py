"""From a request to a job: device, preflight, profile, settings, run directory, model, checkpoint."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch import nn

from gpudoc.errors import ExitCode
from gpudoc.facts.host import num_cpus
from gpudoc.locks import Lock
from gpudoc.policy import spares_more
from gpudoc.process import openmp
from gpudoc.process.allocator import missing_environment
from gpudoc.process.arguments import own_module
from gpudoc.profile import store
from gpudoc.train import limits
from gpudoc.train.data.order import ENDLESS
from gpudoc.train.data.stream import StreamReader, length_of, most_workers
from gpudoc.train.document import StageRow
from gpudoc.train.events import Event, Finished, Said
from gpudoc.train.job import Job, Origin
from gpudoc.train.ranks.distributed import ranks_here
from gpudoc.train.ranks.fsdp import shard_if_needed
from gpudoc.train.ranks.meeting import meet_here, place_here
from gpudoc.train.ranks.protocol import Ranks, on_rank_0
from gpudoc.train.request import TrainRequest
from gpudoc.train.settings import Surroundings, TrainSettings, choose_fsdp, resolve
from gpudoc.train.start.assemble import Decisions, LiveParts, assemble, make_live
from gpudoc.train.start.identity import hardware_here, workload_key
from gpudoc.train.start.parts import be_deterministic
from gpudoc.train.start.preflight import Flight, check_device, collect_quickly, open_device
from gpudoc.train.start.profiles import Chosen, RunProfile, lasting, of_run
from gpudoc.train.start.profiles import choose as choose_profile
from gpudoc.train.start.room import is_taken, no_room
from gpudoc.train.state.capture import restore, restore_rng
from gpudoc.train.state.restore import Loaded, load
from gpudoc.train.state.run_dir import RunChoice, cut_metrics, identity, lock_run, write_config
from gpudoc.train.state.run_dir import choose as choose_run
from gpudoc.train.step import schedule
from gpudoc.train.step.precision import choose as choose_precision
from gpudoc.train.step.schedule import Rates
from gpudoc.train.stop import Stop
from gpudoc.units import format_bytes
from gpudoc.workload import recompute
from gpudoc.workload.build import Workload, load_workload

Built = tuple[Job, Lock | None]


def build(request: TrainRequest, stop: Stop, ranks: Ranks | None = None) -> Generator[Event, None, Built | Finished]:
    """Build everything that a run needs and report it on the way; `Finished` if the run already has all its steps.

    GpudocError if memory runs out here: a smaller batch would not help.
    """
    workload = _load(request)
    met = meet_here() if ranks is None else None
    flight = check_device(request.device, check=request.preflight, met=met, shared=request.shared)
    yield from flight.said
    ranks = ranks or ranks_here(flight.device, met)
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
    flight: Flight, request: TrainRequest, stop: Stop, ranks: Ranks, workload: Workload
) -> Generator[Event, None, Built | Finished]:
    """The rest of `build`, on a device that works."""
    device = torch.device(flight.device)
    limit = yield from _limit_memory(request, device, ranks)
    model = workload.build_model()
    ranks, sentence = shard_if_needed(ranks, workload, model, limit, choose_fsdp(request.flags, workload.config))
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

    def open_run() -> RunChoice:
        found = choose_run(workload.name, request.run_dir, _resume(request), fixed, settings.steps)
        if not found.finished:
            locks.append(lock_run(found.run))
        return found

    choice = on_rank_0(ranks, open_run)
    if choice.finished:
        return _nothing_to_do(choice)
    for lock in locks:
        if lock.why_not:
            missing = f"its file system has no locks ({lock.why_not}); make sure that no second run uses it"
            yield Said(f"{choice.run.path}: {missing}", warning=True)
    yield from (Said(f"{bad.path.name} is not used: {bad.reason}", warning=True) for bad in choice.bad)
    plan = Decisions(
        request=request,
        stop=stop,
        ranks=ranks,
        workload=workload,
        settings=settings,
        precision=precision,
        device=device,
        choice=choice,
    )
    if choice.checkpoint is None:
        yield from _start_from(plan, model)
    live = make_live(plan, model)
    yield from _scale_lr(plan, live.rates)
    if choice.checkpoint is not None:
        yield from _go_on(plan, live, choice.checkpoint)
    profile = of_run(settings, chosen.profile, here, key)
    if ranks.rank == 0:
        cut_metrics(choice.run, live.course.progress.step)
        write_config(choice.run, workload.config, fixed, workload.name)
        store.save(profile, choice.run.profile)
    teaches = chosen.kind in ("tuned", "preset")
    lesson = RunProfile(profile=profile, path=choice.run.profile, teaches=teaches) if ranks.rank == 0 else None
    origin = Origin(
        profile_kind=chosen.kind,
        resumed_from=None if choice.checkpoint is None else choice.checkpoint.name,
        stages=(*flight.stages, _tune_stage(chosen)),
    )
    job = yield from assemble(plan, live, origin, lesson)
    return job, locks[0] if locks else None


def _resume(request: TrainRequest) -> str:
    """The meaning of --resume: ranks restarted after a crash continue even if the user asked for a new run."""
    place = place_here()
    is_again = place is not None and place.restarts > 0
    return "auto" if is_again and request.resume == "never" else request.resume


def _load(request: TrainRequest) -> Workload:
    """The workload; a flag's seed replaces the config's."""
    workload = load_workload(request.model)
    seed = request.flags.get("seed")
    if isinstance(seed, int):
        train = workload.config.train.model_copy(update={"seed": seed})
        workload.config = workload.config.model_copy(update={"train": train})
    return workload


def _start_again(request: TrainRequest, settings: TrainSettings, device: torch.device, ranks: Ranks) -> Iterator[Event]:
    """Restart this process if the allocator or OpenMP needs other variables: they are read only when it starts."""
    of_allocator = missing_environment(settings.allocator, device.type)
    of_threads = openmp.missing_environment(settings.wait_policy, device.type)
    missing = {**of_allocator, **of_threads}
    if not missing or not request.may_restart:
        return
    words = " ".join(f"{name}={value}" for name, value in missing.items())
    whose = [f"the allocator {settings.allocator!r}"] if of_allocator else []
    whose += ["threads that sleep while they wait"] if of_threads else []
    yield Said(f"starting again with the environment of {' and '.join(whose)}: {words}")
    sys.stdout.flush()
    sys.stderr.flush()
    # together; otherwise a restarted rank would meet processes of other ranks that are about to restart
    ranks.barrier()
    os.execve(sys.executable, [*own_module("gpudoc"), *sys.argv[1:]], {**os.environ, **missing})  # noqa: S606


def _limit_memory(request: TrainRequest, device: torch.device, ranks: Ranks) -> Generator[Event, None, int | None]:
    """Apply the memory limit; returns the bytes that one process may use, None if that is unknown."""
    limit = request.memory_limit_bytes
    if limit is None and device.type == "cpu":
        limit = limits.default_limit_bytes()
        if limit is not None:
            limit //= ranks.local_world
            yield Said(f"memory limit {format_bytes(limit)}: half of what is free; --memory-limit SIZE changes it")
    share = limits.card_share(device) if limit is None else None
    if share is not None:
        limits.enforce(share.limit_bytes, device)
        yield Said(f"memory limit {format_bytes(share.limit_bytes)}: {share.why}; --memory-limit SIZE changes it")
        return share.limit_bytes
    if limit is not None:
        limits.apply(limit, device)
        if device.type == "cuda":
            yield Said(f"memory limit {format_bytes(limit)} for tensors; CUDA's context and NCCL's buffers are extra")
    if limit is None and device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return limit


def _scale_lr(plan: Decisions, rates: Rates) -> Iterator[Event]:
    """Scale the learning rate if the global batch grew automatically, and say so; a typed lr or batch stays."""
    settings = plan.settings
    grew_by_itself = settings.source("global_batch") == "default" and settings.lr is None
    if not grew_by_itself:
        return
    name = plan.workload.config.optimizer.target.partition(":")[2]
    factor, rule = schedule.batch_factor(settings.lr_scaling, name, settings.global_batch, settings.reference_batch)
    if factor == 1.0:
        return
    before = rates.base[0]
    rates.base = [lr * factor for lr in rates.base]
    yield Said(
        f"global batch {settings.reference_batch} -> {settings.global_batch} automatically, so the learning rate goes "
        f"{before:g} -> {rates.base[0]:g} ({rule} rule); train.lr_scaling: off in the config keeps it"
    )


def _start_from(plan: Decisions, model: nn.Module) -> Iterator[Event]:
    """Load the weights that the config names into the new model, and report mismatches."""
    match = plan.workload.load_weights(model)
    if match is not None:
        yield from (Said(sentence, warning=number > 0) for number, sentence in enumerate(match.sentences()))


def _go_on(plan: Decisions, live: LiveParts, path: Path) -> Iterator[Event]:
    """Load the checkpoint into the objects that were built."""
    loaded = load(path, parts=plan.ranks.is_sharded)
    course = live.course
    progress = course.progress = restore(loaded, live.stepper, live.constants)
    smaller = course.order.micro_batch
    if progress.rescues and plan.settings.source("micro_batch") != "flag":
        smaller = min(progress.micro_batch, smaller)
    course.take_micro_batch(smaller)
    if spares_more(progress.activation_checkpointing, plan.settings.activation_checkpointing):
        recompute.apply(live.stepper.parts.model, progress.activation_checkpointing)
    yield from _find_place(live, loaded)
    rng = loaded.rng(plan.ranks.rank)
    before = cast(int, loaded.state.get("world", 1))
    if rng is not None and before == plan.ranks.world:
        restore_rng(rng, live.generators)
    else:
        yield Said(
            f"{before} -> {plan.ranks.world} processes: the order of samples stays the same, the dropout masks differ",
            warning=True,
        )
    yield Said(f"continues from {path.name} of {plan.choice.run.path}")
    yield from _stretched(loaded.state.get("end_step"), plan, progress.step)


def _stretched(before: object, plan: Decisions, step: int) -> Iterator[Event]:
    """Say how a changed number of steps affects a schedule that ends with the last step."""
    scheduled, now = plan.workload.config.schedule, plan.settings.steps
    if not isinstance(before, int) or before == now or scheduled.name == "constant":
        return
    was, becomes = (schedule.factor(scheduled, step, total) for total in (before, now))
    yield Said(
        f"{now} steps instead of {before}: the {scheduled.name} schedule of the learning rate now ends there, so in "
        f"step {step} it continues at {becomes:.0%} of its peak value instead of {was:.0%}",
        warning=True,
    )


def _find_place(live: LiveParts, loaded: Loaded) -> Iterator[Event]:
    """Continue a stream at the checkpoint's place, or say what it costs to find that place."""
    reader, course = live.feeds.reader, live.course
    if not isinstance(reader, StreamReader):
        return
    place = loaded.place()
    if place is not None:
        reader.go_to(place)
        return
    epoch, start, _ = course.order.span(course.progress.step)
    inside = f" of epoch {epoch}" if course.order.num_samples != ENDLESS else ""
    if start:
        yield Said(
            f"an iterable data set without a state_dict: its first {start} samples{inside} are read again and "
            "skipped; with state_dict and load_state_dict it would continue immediately"
        )


def _nothing_to_do(choice: RunChoice) -> Finished:
    import json

    summary = json.loads(choice.run.summary.read_text("utf-8"))
    reason = f"{choice.run.path} has finished all its steps; to train longer: --steps N; to start again: --resume never"
    return Finished(summary=summary, exit_code=ExitCode.OK, reason=reason, go_on=None)


def _tune_stage(chosen: Chosen) -> StageRow:
    made = None if chosen.profile is None else chosen.profile.made
    return {
        "name": "tune",
        "device": None,
        "memory_peak_bytes": None,
        "status": "skipped" if made is None else "done before",
        "seconds": 0.0 if made is None else made.seconds,
        "because": chosen.sentence,
    }
