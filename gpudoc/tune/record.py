"""Turn the findings of a search into a profile that can be shared."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import gpudoc
from gpudoc.doctor.spinning import crowd_here, find_spinning
from gpudoc.profile import model
from gpudoc.profile.model import Loader
from gpudoc.tune.findings import Findings
from gpudoc.tune.model.gain import Gain
from gpudoc.tune.model.noise import Noise, noise_of
from gpudoc.tune.search.choose import explain_knee, explain_largest, explain_variant
from gpudoc.tune.search.largest import Largest
from gpudoc.tune.trial.messages import Trial, Variant
from gpudoc.workload.config import LoadedConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The contents of a profile apart from the findings: workload, machine, memory limit, time spent, how it ended.

    `asked` holds the options of the command except its budget.
    """

    config: LoadedConfig
    hardware: model.Hardware
    workload: model.WorkloadKey
    device: str
    limit_bytes: int
    user_limit_bytes: int | None
    seconds: float
    ranks: int = 1
    source: str = ""
    asked: tuple[str, ...] = ()
    interrupted: bool = False
    goal: str = "throughput"


def make_profile(context: Context, found: Findings, trials: Sequence[Trial]) -> model.Profile:
    """The profile of the findings so far; it has the default's batch if none was chosen."""
    settings = _settings(context, found)
    return model.Profile(
        made=made_now(context.seconds, len(trials), interrupted=context.interrupted),
        hardware=_hardware(context),
        workload=context.workload,
        settings=settings,
        evidence=evidence_of(found, trials, context.limit_bytes, context.goal),
        why=tuple(_why(found, settings, noise_of(trials), context.device)),
    )


def about_noise(noise: Noise | None, device: str, tried: Sequence[model.VariantTrial] = ()) -> list[str]:
    """Sentences about disturbances that put all findings in doubt, for the top; empty on a quiet machine."""
    return [] if noise is None else [str(noise), *about_threads(device, noise, tried)]


def about_threads(device: str, noise: Noise | None, tried: Sequence[model.VariantTrial] = ()) -> list[str]:
    """The fix for spinning threads, which make steps several times slower while other processes compute.

    Empty if nobody else computed during the trials, or if the fix was tried: then it has a separate row.
    """
    if noise is None or device != "cpu" or any("wait_policy" in row.changes for row in tried):
        return []
    spinning = find_spinning(crowd_here(noise.most_cpus))
    return [] if spinning is None else [f"{spinning.title}: {spinning.fix[0].run}"]


def _hardware(context: Context) -> model.Hardware:
    """The machine as training will see it: its memory is the user's limit if there is one."""
    hardware = context.hardware
    limit = context.user_limit_bytes
    if limit is not None:
        known = hardware.memory_bytes or limit
        hardware = hardware.model_copy(update={"memory_bytes": limit if context.device == "cpu" else min(known, limit)})
    return hardware.model_copy(update={"count": context.ranks})


def _settings(context: Context, found: Findings) -> model.Settings:
    batch = found.choice.batch if found.choice else found.defaults[0].request.batches[0]
    whole = context.config.config.train.global_batch
    accumulation = 1 if whole == "auto" else -(-whole // (batch * context.ranks))
    return _profile_settings(found.variant, found.feed, batch, accumulation)


def _profile_settings(variant: Variant, feed: Loader | None, batch: int, accumulation: int) -> model.Settings:
    return model.Settings(
        **variant.model_dump(),
        micro_batch=batch,
        accumulation=accumulation,
        loader=feed or Loader(),
    )


def made_now(seconds: float, trials: int, *, interrupted: bool = False) -> model.Made:
    """The head of a profile, for a search of this duration and number of trials."""
    return model.Made(
        at=_now(),
        gpudoc=gpudoc.__version__,
        seconds=round(seconds, 1),
        trials=trials,
        interrupted=True if interrupted else None,
    )


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def evidence_of(found: Findings, trials: Sequence[Trial], limit_bytes: int | None, goal: str) -> model.ProfileEvidence:
    """The evidence for the settings: every trial, the values tried for each part, the gain with its uncertainty."""
    largest, gain, noise = found.largest, found.gain, noise_of(trials)
    ratio = gain.of_choice
    steps = [trial for trial in trials if trial.request.kind != "plan" and not _is_for_loader(trial)]
    return model.ProfileEvidence(
        goal=goal,
        largest_batch=largest.batch if largest else None,
        fastest_batch=found.choice.fastest if found.choice else None,
        memory_limit_bytes=limit_bytes,
        memory_model=_memory_model(largest),
        trials=tuple(row for trial in steps for row in _rows(trial)),
        variants=tuple(found.tried),
        loader=tuple(row for trial in found.feed_trials for row in trial.loaders or _loader_rows(trial)),
        default=next(iter(_rows(found.defaults[0])), None) if found.defaults else None,
        samples_per_s=None if gain.chosen is None else round(gain.chosen.middle, 2),
        speedup_over_default=None if ratio is None else round(ratio.middle, 3),
        speedup_interval=None if ratio is None else (round(ratio.low, 3), round(ratio.high, 3)),
        parts=_parts_found(found.num_tried, gain, noise, largest),
        disturbed_trials=None if noise is None else noise.num_disturbed,
        other_cpus=None if noise is None else noise.most_cpus,
    )


def _is_for_loader(trial: Trial) -> bool:
    """Whether the trial is a launch with other loader settings, which has a separate table."""
    return trial.how == "launch" and trial.request.kind == "loader"


def _parts_found(
    tried: Mapping[model.PartName, int], gain: Gain, noise: Noise | None, largest: Largest | None
) -> tuple[model.PartFound, ...]:
    """Each part of the settings with the evidence for this search's answer; a largest batch counts as an answer."""
    times = None
    if gain.kept_default and any(tried.values()):
        times = (1.0, 1.0, 1.0)
    elif gain.ratio is not None and not gain.kept_default:
        times = (round(gain.ratio.middle, 3), round(gain.ratio.low, 3), round(gain.ratio.high, 3))
    counts = {**tried, "batch": tried["batch"] or int(largest is not None)}
    at = _now()
    return tuple(
        model.PartFound(name=name, at=at, tried=count, times=times if count else None, disturbed=noise is not None)
        for name, count in counts.items()
    )


def _memory_model(largest: Largest | None) -> model.MemoryFit | None:
    """The line of peak memory over the batch; None if the search found none."""
    if largest is None or largest.line is None:
        return None
    return model.MemoryFit(
        fixed_bytes=round(largest.line.fixed_bytes),
        bytes_per_sample=round(largest.line.bytes_per_sample, 1),
        residual=round(largest.residual),
    )


def _rows(trial: Trial) -> list[model.ProfileTrial]:
    """One row for each batch that a trial measured, and one for the batch that ended it."""
    rows = [_row(trial, point.batch, True) for point in trial.points if point.batch != trial.failed_batch]
    if not trial.fits or not rows:
        batches = trial.request.batches or (1,)
        rows.append(_row(trial, trial.failed_batch or batches[0], trial.fits))
    return rows


def _row(trial: Trial, batch: int, fits: bool) -> model.ProfileTrial:
    point, request = trial.point(batch), trial.request
    is_launch = trial.how == "launch"
    rate = point.samples_per_s if point else None
    rate = trial.samples_per_s if is_launch else None if rate is None else rate * request.ranks
    return model.ProfileTrial(
        kind=request.kind,
        batch=batch,
        fits=fits,
        end="fits" if fits else trial.end.value,
        peak_bytes=point.peak_bytes if point else None,
        samples_per_s=round(rate, 2) if rate and fits else None,
        seconds=round(trial.seconds, 2),
        # a script decides its own settings
        settings=None
        if is_launch
        else _profile_settings(request.variant, request.feed, batch, request.num_micros(batch)),
    )


def _loader_rows(trial: Trial) -> tuple[model.LoaderTrial, ...]:
    """The row of a launch with other loader settings; empty if the launch failed."""
    feed, speed = trial.request.feed, trial.samples_per_s or trial.steps_per_s
    if feed is None or speed is None or not trial.fits:
        return ()
    row = model.LoaderTrial(
        samples_per_s=round(speed, 2), wait_share=round(trial.measured.get("wait_share", 0.0), 4), **feed.model_dump()
    )
    return (row,)


def _why(found: Findings, settings: model.Settings, noise: Noise | None, device: str) -> list[str]:
    sentences = about_noise(noise, device, found.tried)
    sentences.append(found.choice.why if found.choice else f"micro_batch {settings.micro_batch}: the reference batch")
    if settings.accumulation > 1:
        sentences.append(f"accumulation {settings.accumulation}: keeps the global batch of the config")
    if found.largest is not None:
        sentences.append(explain_largest(found.largest))
    sentences.append(explain_knee(found.speeds))
    sentences += explain_variant(found.variant, found.tried, {**found.rejected, **found.reasons})
    sentences += found.feed_reasons or (f"num_workers {settings.loader.num_workers}: not tuned",)
    sentences += found.notes
    return [sentence for sentence in sentences if sentence]
