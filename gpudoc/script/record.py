"""Turns the findings about a script into a profile that train finds again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudoc.profile import model
from gpudoc.script.advice import about_a_larger_batch
from gpudoc.script.command import Command
from gpudoc.script.findings import ScriptFindings
from gpudoc.script.look import script_loaders
from gpudoc.script.remember import file_digest, workload_of
from gpudoc.tune.model.noise import Noise, noise_of
from gpudoc.tune.record import about_noise, evidence_of, made_now
from gpudoc.tune.trial.messages import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptContext:
    """What a profile holds in addition to the findings: command, machine, limit, time and launches spent."""

    command: Command
    hardware: model.Hardware
    limit_bytes: int | None
    seconds: float
    launches: int
    goal: str = "throughput"


def make_profile(context: ScriptContext, found: ScriptFindings, trials: Sequence[Trial]) -> model.Profile:
    """The profile of the findings so far; settings that were not searched stay as in the script."""
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
        evidence=evidence_of(found, trials, context.limit_bytes, context.goal),
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


def why(found: ScriptFindings, noise: Noise | None = None, device: str = "") -> list[str]:
    """One plain sentence for each decision, after the sentences about noise that puts all of them in doubt."""
    sentences = about_noise(noise, device, found.tried)
    sentences += [row.why for row in found.tried]
    sentences += found.feed_reasons
    if found.why_kept:
        sentences.append(found.why_kept)
    if found.batch_reasons:
        sentences += found.batch_reasons
        if found.batch is not None:
            sentences += about_a_larger_batch(found.look, found.batch, found.lever, found.look.batch)
    elif found.why_no_lever:
        sentences.append(f"batch not searched: {found.why_no_lever}")
    sentences += found.feed_notes if found.feed is not None else ()
    return list(dict.fromkeys([*sentences, *found.notes]))


def _loader(found: ScriptFindings) -> model.Loader:
    if found.feed is not None:
        return found.feed
    own = found.look.training
    if own is None:
        return model.Loader()
    return model.Loader(
        num_workers=own.num_workers,
        prefetch_factor=own.prefetch_factor or 2,
        pin_memory=own.pin_memory,
        persistent_workers=own.persistent_workers,
    )
