"""Bounds for a change that only rounds differently: the script itself with its initial weights moved by one bit.

Training makes small differences larger, so a fixed bound says nothing after enough steps. The growth is measured:
control runs of the unchanged script give the distance that one bit makes, step by step. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpudoc.fix.launches import Nudge, RecordedRun, RoundingOrder
from gpudoc.fix.model import Claim
from gpudoc.fix.proof import FixProof, RoundingBound, beyond, equal_to_itself

PLAIN, SINGLE = RoundingOrder(), RoundingOrder(single=True)
# a change may be this many times as far away as the control runs, at any step
_TIMES = 3.0
# up to this many times that bound, more control runs follow: the farthest of two is not a reliable bound
_CLOSE = 2.0
# the bound relative to the loss over the first steps, where training has not made differences larger yet
_FIRST, _MOST_FIRST = 20, 1e-3
_LAST_BIT = 2.0**-23


def may_be_rounding(proof: FixProof, before: Sequence[RecordedRun], after: Sequence[RecordedRun]) -> bool:
    """Whether control runs could show that a change which differs only rounds differently."""
    return (
        proof.candidate.claim is Claim.ROUNDING
        and proof.claim is Claim.CHANGES
        and proof.is_gain
        and not any(_other(before[0], run, with_batches=False) for run in after)
    )


def judge_rounding(
    proof: FixProof, before: Sequence[RecordedRun], after: Sequence[RecordedRun], controls: Sequence[RecordedRun]
) -> FixProof:
    """The proof with the claim ROUNDING if each loss lies within the bound of the control runs, else as it was.

    `before` and `after` begin with the runs that were recorded like the control runs.
    """
    if any(run.timed_out for run in controls):
        why = f"{proof.why}; there was no time for the control runs that determine the bound on its rounding"
        return replace(proof, why=why, is_open=True)
    reason = _no_bound(before, after, controls, with_batches=not proof.candidate.other_batches)
    if reason:
        return replace(proof, why=f"{proof.why}; no bound on its rounding could be determined: {reason}")
    found, reason = _within(before[0], after, controls)
    if found is None:
        return replace(proof, why=f"{proof.why}; {reason}")
    files = next((text for run in after if (text := beyond(before[0], run))), "")
    return replace(
        proof,
        claim=Claim.BEHAVIOUR if files else Claim.ROUNDING,
        why=files,
        rounding=found,
        launches=proof.launches + len(controls),
    )


def judge_by_controls(
    proof: FixProof,
    before: Sequence[RecordedRun],
    after: Sequence[RecordedRun],
    control: Callable[[Nudge], RecordedRun],
    *,
    has_time: Callable[[], bool],
) -> FixProof:
    """The proof after two control runs, or after four if losses lie just outside of the bound of two."""
    controls = [control("up"), control("down")]
    judged = judge_rounding(proof, before, after, controls)
    if not _is_close(judged, before, after, controls) or not has_time():
        return judged
    return judge_rounding(proof, before, after, [*controls, control("out"), control("in")])


def _is_close(
    proof: FixProof, before: Sequence[RecordedRun], after: Sequence[RecordedRun], controls: Sequence[RecordedRun]
) -> bool:
    """Whether losses lie outside of the bound of these control runs but within twice that: two runs may be too few."""
    if proof.claim is not Claim.CHANGES or _no_bound(
        before, after, controls, with_batches=not proof.candidate.other_batches
    ):
        return False
    return _within(before[0], after, controls, times=_CLOSE * _TIMES)[0] is not None


def _no_bound(
    before: Sequence[RecordedRun],
    after: Sequence[RecordedRun],
    controls: Sequence[RecordedRun],
    *,
    with_batches: bool,
) -> str:
    if any(run.failure or run.shortage or run.timed_out or run.record is None for run in (*controls, *after)):
        return "a control run failed"
    if own := equal_to_itself(before):
        return f"the script does not repeat itself ({own})"
    first = before[0]
    changed = [_other(first, run, with_batches=with_batches) for run in after]
    if other := next((text for text in (*(_other(first, run) for run in controls), *changed) if text), ""):
        return other
    for run in (first, *after, *controls):
        losses = () if run.record is None else run.record.losses
        if len(losses) < _FIRST:
            return f"it takes {_FIRST} losses or more"
        if not all(one is not None and math.isfinite(one) for one in losses):
            return "not every loss is one finite number"
    assert first.record is not None
    if all(run.record is not None and run.record.losses == first.record.losses for run in controls):
        return "one bit in the initial weights makes no difference to the losses"
    return ""


def _other(first: RecordedRun, run: RecordedRun, *, with_batches: bool = True) -> str:
    """The difference that rounding cannot explain: batches, steps, how often backward was called, random numbers."""
    a, b = first.record, run.record
    if a is None or b is None:
        return "one of the launches was not recorded"
    if a.steps != b.steps or len(a.roots) != len(b.roots):
        return "steps or calls of backward differ"
    if with_batches and first.batches != run.batches:
        return "the batches differ"
    drawn = [name for name in a.state if "generator" in name and a.state[name] != b.state.get(name)]
    return f"{drawn[0]} differs at the end" if drawn else ""


def _within(
    first: RecordedRun, after: Sequence[RecordedRun], controls: Sequence[RecordedRun], *, times: float = _TIMES
) -> tuple[RoundingBound | None, str]:
    base = _losses(first)
    changed, control = [_losses(run) for run in after], [_losses(run) for run in controls]
    far = allowed = envelope = 0.0
    for index, loss in enumerate(base):
        size = max(abs(loss), 1e-30)
        # a distance that a control run reached is also allowed for the next steps
        envelope = max(envelope, *(abs(one[index] - loss) for one in control))
        distance = max(abs(one[index] - loss) for one in changed)
        at = f"the loss of backward call {index + 1} is {distance / size:.1e} away"
        if distance > times * max(envelope, _LAST_BIT * size):
            return None, f"{at}, and one bit in the initial weights makes {envelope / size:.1e}"
        if index < _FIRST and distance > _MOST_FIRST * size:
            return None, f"{at}, more than {_MOST_FIRST:.0e}"
        far, allowed = max(far, distance / size), max(allowed, times * max(envelope / size, _LAST_BIT))
    return RoundingBound(far, allowed, len(base)), ""


def _losses(run: RecordedRun) -> list[float]:
    return [one for one in ([] if run.record is None else run.record.losses) if one is not None]
