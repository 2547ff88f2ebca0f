"""From what was found to a profile that train finds again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudoc.profile import model
from gpudoc.script.advice import about_a_larger_batch
from gpudoc.script.command import Command
from gpudoc.script.findings import Findings, speed_of
from gpudoc.script.look import script_loaders
from gpudoc.script.remember import file_digest, workload_of
from gpudoc.tune.model.noise import Noise, noise_of
from gpudoc.tune.model.scaling import Span
from gpudoc.tune.record import about_threads, made_now, memory_model, parts_found
from gpudoc.tune.trial.messages import Feed, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a profile says besides the findings: the command, the machine, the limit, time and launches spent."""

    command: Command
    hardware: model.Hardware
    limit_bytes: int | None
    seconds: float
    launches: int


def make_profile(context: Context, found: Findings, trials: Sequence[Trial]) -> model.Profile:
    """The profile of the findings so far; what was not searched stays as the script has it."""
    look = found.look
    return model.Profile(
        made=made_now(context.seconds, context.launches),
        hardware=context.hardware.model_copy(update={"count": look.ranks, "cuda": look.cuda}),
        workload=workload_of(context.command.words),
        settings=model.Settings.model_validate(
            {
                "precision": look.precision,
                "wait_policy": found.variant.wait_policy,
                "micro_batch": found.batch or look.batch or 1,
                "accumulation": look.micro_batches,
                "loader": _loader(found),
            }
        ),
        evidence=_evidence(context, found, trials),
        why=tuple(why(found, noise_of(trials), context.hardware.device)),
        script=model.Script.model_validate(
            {
                "loaders": script_loaders(look),
                "lever": found.lever,
                "tuned": [
                    *(["loader"] if found.feed is not None else []),
                    *(["batch"] if found.batch is not None else []),
                ],
                "file": file_digest(context.command.words),
            }
        ),
    )


def why(found: Findings, noise: Noise | None = None, device: str = "") -> list[str]:
    """One plain sentence for each thing that was decided, after what puts all of them in doubt."""
    sentences: list[str] = [] if noise is None else [str(noise), *about_threads(device, noise, found.tried)]
    sentences += [row.why for row in found.tried]
    if found.fed is not None:
        sentences += found.fed.reasons
    if found.kept_default:
        sentences.append(found.kept_default)
    if found.sized is not None:
        sentences += found.sized.reasons
        if found.batch is not None:
            sentences += about_a_larger_batch(found.look, found.batch, found.lever, found.look.batch)
    elif found.why_no_lever:
        sentences.append(f"batch not searched: {found.why_no_lever}")
    sentences += found.fed.notes if found.fed is not None and found.feed is not None else ()
    return list(dict.fromkeys([*sentences, *found.notes]))


def _loader(found: Findings) -> model.Loader:
    if found.feed is not None:
        return model.Loader(**found.feed.model_dump())
    own = found.look.training
    if own is None:
        return model.Loader()
    return model.Loader(
        num_workers=own.num_workers,
        prefetch_factor=own.prefetch_factor or 2,
        pin_memory=own.pin_memory,
        persistent_workers=own.persistent_workers,
    )


def _evidence(context: Context, found: Findings, trials: Sequence[Trial]) -> model.Evidence:
    largest = found.sized.largest if found.sized is not None else None
    gained, noise = found.gain, noise_of(trials)
    ratio = Span(1.0, 1.0, 1.0) if found.unchanged else None if gained is None else gained.ratio
    return model.Evidence(
        largest_batch=largest.batch if largest else None,
        fastest_batch=found.sized.choice.fastest if found.sized and found.sized.choice else None,
        memory_limit_bytes=context.limit_bytes,
        memory_model=memory_model(largest),
        trials=tuple(_row(trial) for trial in trials if trial.request.kind not in ("loader", "calibrate")),
        variants=tuple(found.tried),
        loader=tuple(row for trial in trials if (row := _loader_row(trial)) is not None),
        default=_row(found.defaults[0]) if found.defaults else None,
        samples_per_s=None if gained is None or gained.chosen is None else round(gained.chosen.middle, 2),
        speedup_over_default=None if ratio is None else round(ratio.middle, 3),
        speedup_interval=None if ratio is None else (round(ratio.low, 3), round(ratio.high, 3)),
        parts=parts_found(found.num_tried, found.gain, noise, largest),
        disturbed_trials=None if noise is None else noise.num_disturbed,
        other_cpus=None if noise is None else noise.most_cpus,
    )


def _row(trial: Trial) -> model.Trial:
    point = trial.points[-1] if trial.points else None
    batch = trial.request.batches[0] if trial.request.batches else point.batch if point else 1
    rate = trial.measured.get("samples_per_s") if trial.fits else None
    return model.Trial(
        kind=trial.request.kind,
        batch=batch,
        fits=trial.fits,
        end=trial.end.value,
        peak_bytes=point.peak_bytes if point else None,
        samples_per_s=None if rate is None else round(rate, 2),
        seconds=round(trial.seconds, 2),
    )


def _loader_row(trial: Trial) -> model.LoaderTrial | None:
    feed: Feed | None = trial.request.feed
    speed = speed_of(trial)
    if trial.request.kind != "loader" or feed is None or speed is None:
        return None
    return model.LoaderTrial(
        num_workers=feed.num_workers,
        prefetch_factor=feed.prefetch_factor,
        samples_per_s=round(speed, 2),
        wait_share=round(trial.measured.get("wait_share", 0.0), 4),
        pin_memory=feed.pin_memory,
        persistent_workers=feed.persistent_workers,
    )
