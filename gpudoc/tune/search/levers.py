"""The levers tried one after the other, each on top of the best so far: kept if it is faster and trains as well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpudoc.doctor.spinning import may_sleep
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.profile.model import LossDeviation, VariantTrial
from gpudoc.tune.findings import Findings, SearchPlan
from gpudoc.tune.model.losses import BOUNDS, LEAST_STEPS, Reference, agree, explain_losses
from gpudoc.tune.model.noise import noise_of
from gpudoc.tune.search.choose import speedup
from gpudoc.tune.search.repetition import wins
from gpudoc.tune.search.session import WorkloadSession, why_rejected
from gpudoc.tune.search.variants import LEVERS, SLEEPING, Abilities, Lever
from gpudoc.tune.trial.messages import End, Trial, TrialRequest, Variant

# shares of the budget: no lever is begun with less left, and the last one must leave this much
_LEAST_LEFT, _KEPT_FOR_THE_BATCH = 0.4, 0.3
_TIMED_STEPS = 6


@dataclass(frozen=True, slots=True)
class _Check:
    """Whether a variant trains like the reference, in numbers and in words."""

    agrees: bool
    losses: LossDeviation | None
    told: str


def try_variants(session: WorkloadSession, plan: SearchPlan, found: Findings, timed_s: float) -> None:
    """Fill `variant` and `tried` at one batch with data that is ready; each lever is timed for `timed_s` seconds."""
    abilities = _beside_others(plan.abilities, found.defaults)
    if not any(lever.is_worth_a_trial(abilities, plan.goal, found.variant) for lever in LEVERS):
        return
    sleeps = SLEEPING.is_worth_a_trial(abilities, plan.goal, found.variant)
    if session.left_s < _LEAST_LEFT * session.budget_s and not sleeps:
        found.notes.append("no lever was tried; the budget is reserved for the batch")
        return
    request = plain_request(session, plan, found.variant, timed_s)
    plain = session.run(request, "speed of one step with data that is ready")
    found.variants.append(plain)
    abilities = _beside_others(plan.abilities, [*found.defaults, plain])
    climb = _Climb(session, plan, found, _reference(session, request, plain), plain, BOUNDS[found.variant.precision])
    failed: set[str] = set()
    for lever in LEVERS:
        if lever.family in failed or not lever.is_worth_a_trial(abilities, plan.goal, found.variant):
            continue
        trial = climb.take(lever)
        if trial is not None and not trial.fits and lever.family:
            failed.add(lever.family)


@dataclass(slots=True)
class _Climb:
    """Tries levers on top of the best so far: `best` is its last trial, `tolerance` how far its losses may differ."""

    session: WorkloadSession
    plan: SearchPlan
    found: Findings
    reference: Reference | None
    best: Trial
    tolerance: float

    def take(self, lever: Lever) -> Trial | None:
        """The lever's trial, None if there is no time for it; the lever is kept if it wins.

        A lever that loses while its threads spin next to other processes is tried once more with threads that sleep.
        """
        trial = self._try(lever)
        if trial is None or not self._spins(trial):
            return trial
        self._try(lever.beside(SLEEPING))
        return trial

    def _try(self, lever: Lever) -> Trial | None:
        session, found = self.session, self.found
        variant = found.variant.model_copy(update=dict(lever.changes))
        if not _can_afford(session, self.plan, found, lever, variant):
            found.notes.append(f"{lever.name} was not tried; the budget is reserved for the batch")
            return None
        request = self.best.request.model_copy(update={"variant": variant, "repeat": 0})
        trial = self._run(request, f"trying {lever.name}")
        if trial.end is End.TIME_UP:
            found.notes.append(f"{lever.name} was not tried completely: {trial.detail}")
            return None
        tolerance = max(self.tolerance, lever.tolerance)
        check = _check(self.reference, trial, tolerance)
        row = row_of(lever, trial, speedup([self.best], [trial]), check, wins(trial, self.best, self._run))
        found.tried.append(row)
        session.say(f"  {row.why}")
        if row.kept:
            found.variant, self.tolerance = variant, tolerance
        # the next lever is compared with the last trial of the best variant
        runs = (t for t in reversed(found.variants) if t.fits and t.request.variant == found.variant)
        self.best = next(runs, self.best)
        return trial

    def _run(self, request: TrialRequest, why: str = "") -> Trial:
        self.found.variants.append(self.session.attempt(request, why))
        return self.found.variants[-1]

    def _spins(self, trial: Trial) -> bool:
        """Whether this lever lost while its threads spun for CPUs on which other processes computed."""
        row = self.found.tried[-1]
        lost = row.times is not None and row.times < 1 and agree(row.losses)
        abilities = _beside_others(self.plan.abilities, [trial])
        return lost and SLEEPING.is_worth_a_trial(abilities, self.plan.goal, trial.request.variant)


def give_up(found: Findings, why: str, brief: str = "not faster with your data") -> None:
    """Reject the kept levers after all, with the reason; `brief` is the reason in a few words."""
    found.tried = [
        row.model_copy(update={"kept": False, "why": f"{row.why}, but rejected: {why}", "rejected": brief})
        if row.kept
        else row
        for row in found.tried
    ]


def _beside_others(abilities: Abilities, trials: Sequence[Trial]) -> Abilities:
    """The abilities, updated with whether threads spun for CPUs that other processes used during these trials."""
    noise = noise_of(trials)
    return abilities if noise is None else replace(abilities, threads_spin=may_sleep(noise.most_cpus))


def _reference(session: WorkloadSession, request: TrialRequest, plain: Trial) -> Reference | None:
    """The losses to compare with; None if the plain variant does not run at this batch.

    GpudocError if a loss is NaN or infinite: the speed of a step that learns nothing is not worth a profile.
    """
    if not plain.fits:
        return None
    odd = next((number for number, loss in enumerate(plain.losses, start=1) if not math.isfinite(loss)), None)
    if odd is not None:
        raise GpudocError(
            f"the model learns nothing: its loss is {plain.losses[odd - 1]} in step {odd}; tune does not compare "
            "such steps",
            hint="fix that first: lower the learning rate, set train.grad_clip, or look for NaN in the data",
            exit_code=ExitCode.BAD_ANSWER,
        )
    if not plain.measured.get("draws"):
        return Reference(plain.losses)
    other = request.model_copy(update={"seed": 1})
    again = session.run(other, "the same steps with other random numbers")
    return Reference(plain.losses, again.losses)


def _can_afford(session: WorkloadSession, plan: SearchPlan, found: Findings, lever: Lever, variant: Variant) -> bool:
    """Whether the trial leaves enough of the budget; a compiled trial is expected to take as long as earlier ones."""
    expected_s = session.runner.expected_s(plan.reference, steps=_TIMED_STEPS + LEAST_STEPS, variant=variant)
    if lever.family == "compile":
        expected_s = max([expected_s, *(t.seconds for t in found.variants if t.request.variant.compile)])
    if lever is SLEEPING:
        # while other processes compute, no later lever promises as much
        return expected_s <= session.free_s
    after_s = session.left_s - expected_s
    return session.left_s >= _LEAST_LEFT * session.budget_s and after_s >= _KEPT_FOR_THE_BATCH * session.budget_s


def _check(reference: Reference | None, trial: Trial, tolerance: float) -> _Check:
    if reference is None:
        return _Check(True, None, "there is nothing to compare its losses with")
    losses = reference.compare(trial.losses, tolerance)
    return _Check(agree(losses), losses, explain_losses(losses))


def row_of(lever: Lever, trial: Trial, times: float | None, check: _Check | None, is_faster: bool) -> VariantTrial:
    """The result of a lever, in numbers and in one line; its losses are not compared without a `check`."""
    agrees = check is None or check.agrees
    is_kept = trial.fits and is_faster and agrees
    verdict = "kept" if is_kept else "not used"
    but = "but " if times is not None and times > 1 and not agrees else ""
    losses = "" if check is None else f", {but}{check.told}"
    if not trial.fits:
        why = why_rejected(trial)
    elif times is None:
        why = f"it runs where nothing else did{losses}: {verdict}"
    else:
        near = " (such timings vary by that much)" if times > 1 and not is_faster else ""
        why = f"{times:.2f} times the speed{near}{losses}: {verdict}"
    return VariantTrial(
        name=lever.name,
        changes=dict(lever.changes),
        times=None if times is None else round(times, 4),
        losses=check.losses if check is not None and trial.fits else None,
        kept=is_kept,
        why=f"{lever.name}: {why}",
        rejected=None if is_kept else _rejected(trial, times, agrees=agrees),
    )


def _rejected(trial: Trial, times: float | None, *, agrees: bool) -> str:
    """A few words on why a lever is not used."""
    if not trial.fits:
        return "it failed"
    if not agrees:
        return "it trains differently"
    if times is not None and times <= 1:
        return "slower"
    return "not certainly faster"


def plain_request(session: WorkloadSession, plan: SearchPlan, variant: Variant, timed_s: float) -> TrialRequest:
    """The trial to compare every lever with: steps at the reference batch with data that is ready."""
    return TrialRequest(
        kind="variant",
        batches=(plan.reference,),
        variant=variant,
        ranks=session.runner.ranks,
        seconds_per_batch=timed_s,
    )
