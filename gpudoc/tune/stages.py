"""The order of a search: the default to beat, variants, the largest batch, speed, the loader, the choice comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from gpudoc.tune.choose import BatchChoice, choose_batch, choose_variant, speedup
from gpudoc.tune.largest import Largest, find_largest, settle_largest
from gpudoc.tune.session import Session
from gpudoc.tune.speed import sizes_to_time
from gpudoc.tune.trial import Feed, Point, Request, Trial, Variant
from gpudoc.tune.variants import Abilities, variants_to_try

STEADY_STEPS = 20
_LEAST_STEADY_STEPS = 4
_TIMED_SHARE = 1 / 60
# of what is left of the budget when the search for the largest batch begins
_LARGEST_SHARE = 0.5
_STEADY_SHARE = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a search is to find: its parts, its goal, and the batches that make sense."""

    parts: frozenset[str]
    goal: str
    reference: int
    cap: int
    useful: int
    base: Variant
    abilities: Abilities


@dataclass(slots=True)
class Findings:
    """What is known so far; complete enough for a profile as soon as the default trial is there."""

    defaults: list[Trial] = field(default_factory=list)
    variants: list[Trial] = field(default_factory=list)
    variant: Variant = field(default_factory=Variant)
    largest: Largest | None = None
    speeds: tuple[Point, ...] = ()
    choice: BatchChoice | None = None
    feed: Feed = field(default_factory=Feed)
    feed_reasons: tuple[str, ...] = ()
    feed_trials: tuple[Trial, ...] = ()
    joints: list[Trial] = field(default_factory=list)
    kept_default: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def speedup(self) -> float | None:
        """Samples per second of the choice over the default's, both with real data; None when not measured."""
        return 1.0 if self.kept_default else speedup(self.defaults, self.joints)


class LoaderTuner(Protocol):
    """How the loader is tuned once the batch is chosen."""

    def __call__(self, session: Session, plan: Plan, found: Findings) -> None:
        """Measure and choose: fills `feed`, its reasons and its trials."""


def run_stages(session: Session, plan: Plan, found: Findings, loader: LoaderTuner | None = None) -> None:
    """Fill `found` in the order of user value; stops early, with what there is, when the budget is used up."""
    found.variant = plan.base
    if plan.goal == "largest" and session.where.device == "cpu":
        found.variant = plan.base.model_copy(update={"allocator": "exact"})
    _run_default(session, plan, found)
    if "speed" in plan.parts:
        _try_variants(session, plan, found)
    session.variant = found.variant
    if "batch" in plan.parts:
        _find_largest(session, plan, found)
    if "speed" in plan.parts:
        _time_batches(session, plan, found)
    found.choice = choose_batch(plan.goal, found.speeds, found.largest, plan.useful, plan.reference)
    _run_steady(session, found)
    if "loader" in plan.parts and loader is not None and session.left_s > 5:
        loader(session, plan, found)
    _compare_with_default(session, plan, found)


def _timed_s(session: Session) -> float:
    return min(3.0, max(0.4, session.budget_s * _TIMED_SHARE))


def _default_request(session: Session, plan: Plan, repeat: int) -> Request:
    return Request(
        kind="default",
        batches=(plan.reference,),
        feed=Feed(),
        ranks=session.ranks,
        seconds_per_batch=2 * _timed_s(session),
        repeat=repeat,
    )


def _run_default(session: Session, plan: Plan, found: Findings) -> None:
    why = f"trial 0, the default to beat: batch {plan.reference}, fp32, no loader workers"
    trial = session.run(_default_request(session, plan, 0), why)
    found.defaults.append(trial)
    if not trial.fits:
        found.notes.append(f"the default does not run here: {trial.end.value} in {trial.stage}: {trial.detail[:160]}")


def _try_variants(session: Session, plan: Plan, found: Findings) -> None:
    """Each candidate on top of the best so far, at one batch, with data that is ready."""
    best = found.variant
    candidates = variants_to_try(plan.abilities, plan.goal)
    if not candidates:
        return
    base = session.run(_variant_request(session, plan, best), "speed of one step with data that is ready")
    found.variants.append(base)
    for name, changes in candidates:
        if session.left_s < 0.4 * session.budget_s:
            found.notes.append(f"{name} was not tried: the budget is kept for the batch")
            continue
        variant = best.model_copy(update=dict(changes))
        trial = session.run(_variant_request(session, plan, variant), f"trying {name}")
        found.variants.append(trial)
        chosen, _ = choose_variant(best, base, [(variant, trial)])
        if chosen is not best:
            best, base = chosen, trial
    found.variant = best


def _variant_request(session: Session, plan: Plan, variant: Variant) -> Request:
    return Request(
        kind="variant",
        batches=(plan.reference,),
        variant=variant,
        ranks=session.ranks,
        seconds_per_batch=_timed_s(session),
    )


def _find_largest(session: Session, plan: Plan, found: Findings) -> None:
    session.share_s = session.spent_s + _LARGEST_SHARE * max(0.0, session.left_s)
    limit = session.where.limit_bytes
    assert limit is not None
    largest = find_largest(session, limit_bytes=limit, cap=plan.cap)
    found.largest = largest
    steps = _affordable_steps(session, largest.batch)
    if steps >= STEADY_STEPS or plan.goal == "largest":
        found.largest = settle_largest(session, largest, steps=max(_LEAST_STEADY_STEPS, min(steps, STEADY_STEPS)))
    session.release()
    found.notes += [note for note in largest.notes if note not in found.notes]


def _affordable_steps(session: Session, batch: int) -> int:
    """Steady steps that a share of the remaining budget pays for; the rest of the script costs about four."""
    if not session.samples_per_s:
        return STEADY_STEPS
    room = _STEADY_SHARE * session.left_s * session.samples_per_s / batch - 4
    return min(STEADY_STEPS, max(0, int(room)))


def _time_batches(session: Session, plan: Plan, found: Findings) -> None:
    largest = found.largest.batch if found.largest else plan.useful
    useful = largest if plan.goal == "largest" else plan.useful
    sizes = sizes_to_time(reference=plan.reference, largest=largest, useful=useful)
    rate = session.samples_per_s or 1.0
    affordable = 0.4 * session.left_s
    known = tuple(p for t in found.variants if t.request.variant == found.variant and t.fits for p in t.points)
    if known and rate:
        # the reference batch was timed with this variant already
        sizes = tuple(size for size in sizes if size != plan.reference)
    while sizes and 6 * sum(sizes) / rate > affordable:
        sizes = sizes[1:] if sizes[0] < plan.reference else sizes[:-1]
    found.speeds = known
    if not sizes:
        found.notes.append("the budget did not reach for timing other batches than the reference")
        return
    request = Request(
        kind="speed",
        batches=sizes,
        variant=found.variant,
        ranks=session.ranks,
        seconds_per_batch=_timed_s(session),
    )
    trial = session.run(request, f"speed at batch {', '.join(map(str, sizes))}")
    found.speeds = tuple(sorted((*known, *trial.points), key=lambda p: p.batch))
    if not trial.fits:
        found.notes.append(f"timing stopped at batch {trial.failed_batch}: {trial.end.value}")


def _run_steady(session: Session, found: Findings) -> None:
    """The whole script at the chosen batch, unless the largest batch already went through it."""
    choice, largest = found.choice, found.largest
    if choice is None or largest is None or (largest.settled and choice.batch <= largest.batch):
        return
    steps = _affordable_steps(session, choice.batch)
    if steps < _LEAST_STEADY_STEPS:
        found.notes.append(f"steady state at batch {choice.batch} was not run: the budget is used up")
        return
    trial = session.steady(choice.batch, steps=steps)
    session.release()
    if not trial.fits:
        found.notes.append(f"steady state at batch {choice.batch}: {trial.end.value}: {trial.detail[:160]}")
        if trial.end.is_too_large:
            smaller = max(1, choice.batch // 2)
            found.choice = BatchChoice(smaller, choice.fastest, f"micro_batch {smaller}: {choice.batch} fails later")


def _compare_with_default(session: Session, plan: Plan, found: Findings) -> None:
    """The choice beside the default, both fed by real loaders, interleaved; the faster one stands."""
    if found.choice is None:
        return
    batch = found.choice.batch
    if (batch, found.variant, found.feed) == (plan.reference, Variant(), Feed()):
        found.kept_default = True
        return
    for repeat in (0, 1):
        if repeat and session.left_s < 0:
            break
        request = Request(
            kind="joint",
            batches=(batch,),
            variant=found.variant,
            feed=found.feed,
            ranks=session.ranks,
            seconds_per_batch=2 * _timed_s(session),
            repeat=repeat,
        )
        why = "the choice with real data, beside the default" if repeat == 0 else ""
        found.joints.append(session.run(request, why))
        if repeat == 0:
            found.defaults.append(session.run(_default_request(session, plan, 1)))
    ratio = speedup(found.defaults, found.joints)
    loses = ratio is not None and ratio < 1 and plan.goal == "throughput"
    if loses and (found.largest is None or plan.reference <= found.largest.batch):
        found.notes.append(f"the tuned settings reached {ratio:.2f} times the default's speed, so the default stands")
        found.kept_default = True
        found.variant, found.feed = Variant(), Feed()
        found.choice = BatchChoice(
            plan.reference, found.choice.fastest, f"micro_batch {plan.reference}: the default was not beaten"
        )
