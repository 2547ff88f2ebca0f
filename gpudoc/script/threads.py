"""Threads that sleep while they wait: tried where others compute beside a script and OpenMP's threads spin."""

from __future__ import annotations

from dataclasses import replace

from gpudoc.doctor.spinning import may_sleep
from gpudoc.script.findings import ScriptFindings
from gpudoc.script.runner import CommandSession
from gpudoc.tune.model.noise import noise_of
from gpudoc.tune.search.choose import speedup
from gpudoc.tune.search.levers import row_of
from gpudoc.tune.search.repetition import wins
from gpudoc.tune.search.variants import SLEEPING
from gpudoc.tune.trial.messages import Request, Variant

# both, and each once more because others disturb them
_LAUNCHES = 4
_STEPS, _SECONDS = 24, 3.0


def try_sleeping(session: CommandSession, found: ScriptFindings) -> None:
    """Where others left the look too few CPUs: the session's variant, and what came of it in `tried`."""
    noise = noise_of(found.defaults)
    if session.runner.look.on_gpu or noise is None or not may_sleep(noise.most_cpus):
        return
    if session.free_s < _LAUNCHES * session.runner.overhead_s:
        found.notes.append(f"{SLEEPING.name}: not tried, no time was left; a longer --budget")
        return
    plain = Request(kind="variant", batches=(), steps=_STEPS, seconds_per_batch=_SECONDS)
    asleep = plain.model_copy(update={"variant": Variant.model_validate(SLEEPING.changes)})
    before = session.run(plain, f"others keep {noise.most_cpus:.1f} CPUs busy, and OpenMP's threads spin meanwhile")
    after = session.run(asleep, f"trying {SLEEPING.name}")
    is_faster = before.fits and after.fits and wins(after, before, session.run)
    row = row_of(SLEEPING, after, speedup([before], [after]), None, is_faster)
    found.tried.append(row)
    session.say(f"  {row.why}")
    if row.kept:
        session.variant = found.variant = asleep.variant
        # what is decided next is decided for steps as they now go
        measured = after.measured
        session.runner.look = replace(
            session.runner.look,
            step_s=measured["mean_step_s"],
            wait_share=measured["wait_share"],
            samples_per_s=measured.get("samples_per_s"),
        )
