"""What recorded runs of a script and of its changed file prove: what stayed equal, how much faster it is, and how much
less memory it needs. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudoc.fix.launches import WARNED, RecordedRun
from gpudoc.fix.model import Candidate, Claim
from gpudoc.units import format_bytes, format_count

# a smaller gain may be chance, and does not justify a change
LEAST_GAIN = 1.03
# the least share of the peak that must be saved to count
_LEAST_SAVED = 0.05
_MOST_NAMED = 4
_DIGITS = 4
# ends of epochs to reach: some changes show from the second epoch on, kept samples within the second
_BOUNDARIES = {"persistent-workers": 2, "no-workers": 2, "sample-each-epoch": 1}
_ORDER = (Claim.EXACT, Claim.ROUNDING, Claim.BEHAVIOUR, Claim.CHANGES)


@dataclass(frozen=True, slots=True)
class GainSpan:
    """A ratio, and the lowest and the highest ratio of pieces of launches.

    `sure` is the ratio of the two closest whole launches: below 1, at least one launch gained nothing.
    """

    middle: float
    low: float
    high: float
    sure: float | None = None


@dataclass(frozen=True, slots=True)
class RoundingBound:
    """The largest distance of losses over all steps, and the largest that control runs allow, relative to the loss."""

    distance: float
    allowed: float
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FixProof:
    """The proof for one candidate. `claim` is None if nothing could be compared, and `why` says why.

    `steps` were compared on both sides, across `boundaries` of epochs; `gain` is how many times as fast; `lives` says
    that the script no longer runs out of memory, `is_open` that there was no time to decide. `rounding` is the distance
    of losses that are not equal. The batches of the first `digested` steps were compared, and the later steps were
    timed; None: all steps.
    `without_limit`: the original script ran without the memory limit under which the changed one lives.
    """

    candidate: Candidate
    claim: Claim | None
    why: str
    steps: int = 0
    boundaries: int = 0
    launches: int = 0
    gain: GainSpan | None = None
    peak_before: int | None = None
    peak_after: int | None = None
    lives: bool = False
    is_open: bool = False
    rounding: RoundingBound | None = None
    digested: int | None = None
    without_limit: bool = False

    @property
    def is_gain(self) -> bool:
        """Whether it certainly helps: faster in every launch, clearly less memory, or no longer out of memory."""
        return self.lives or self.is_faster or self.saves

    @property
    def is_faster(self) -> bool:
        """Whether each changed launch was faster than each unchanged one."""
        if self.gain is None:
            return False
        return (self.gain.low if self.gain.sure is None else self.gain.sure) > LEAST_GAIN

    @property
    def saves(self) -> bool:
        """Whether the peak is clearly lower, and the speed no worse than the noise."""
        if self.peak_before is None or self.peak_after is None:
            return False
        return self.peak_after < (1 - _LEAST_SAVED) * self.peak_before and (
            self.gain is None or self.gain.high > 1 / LEAST_GAIN
        )


def judge(
    candidate: Candidate, before: Sequence[RecordedRun], after: Sequence[RecordedRun], *, boundaries: int
) -> FixProof:
    """The proof from launches of the original script and of the candidate, at least two of each."""
    count = len(before) + len(after)
    if any(run.timed_out for run in (*before, *after)):
        return FixProof(
            candidate=candidate, claim=None, why="a launch did not reach its training steps in time", is_open=True
        )
    failed = next((run for run in after if run.failure or run.shortage), None)
    if failed is not None:
        return FixProof(
            candidate=candidate, claim=None, why=f"the changed script fails: {failed.failure or 'memory ran out'}"
        )
    needed = _BOUNDARIES.get(candidate.rewrite, 0)
    if boundaries < needed:
        why = f"it takes effect where an epoch starts; recorded runs reached {boundaries} ends of epochs, not {needed}"
        return FixProof(candidate=candidate, claim=None, why=why, is_open=True)
    gain, steps = _gain(before, after), min(run.steps for run in (*before, *after))
    claim, why = _claim(candidate, before, after)
    return FixProof(
        candidate=candidate, claim=claim, why=why, steps=steps, boundaries=boundaries, launches=count, gain=gain,
        peak_before=min(_peaks(before), default=None), peak_after=max(_peaks(after), default=None),
        digested=before[0].digested,
    )  # fmt: skip


def judge_alive(candidate: Candidate, died: RecordedRun, after: RecordedRun) -> FixProof:
    """The proof from one run that died and one of the changed file, three times as long or to the script's end."""
    if after.timed_out:
        return FixProof(
            candidate=candidate, claim=None, why="it did not reach its training steps in time", is_open=True
        )
    if after.shortage is not None or after.failure:
        why = (
            "the changed script also runs out of memory"
            if after.shortage
            else f"the changed script fails: {after.failure}"
        )
        return FixProof(candidate=candidate, claim=None, why=why)
    if died.record is None or after.record is None or not died.record.roots:
        return FixProof(candidate=candidate, claim=None, why="it crashed before anything could be compared")
    if not after.ended and after.record.steps < 3 * died.record.steps:
        return FixProof(
            candidate=candidate,
            claim=None,
            why="the changed script did not run three times as many steps within the budget",
        )
    common = max(0, len(died.record.roots) - 1)
    equal = died.record.roots[:common] == after.record.roots[:common]
    claim, why = (candidate.claim, "") if equal else (Claim.CHANGES, "its losses differ before it runs out of memory")
    return FixProof(
        candidate=candidate, claim=claim, why=why, steps=common, launches=2, lives=True,
        peak_before=died.peak_bytes, peak_after=after.peak_bytes,
    )  # fmt: skip


def equal_to_itself(runs: Sequence[RecordedRun]) -> str:
    """How two runs of the same script differ; '' if they are equal."""
    first, *others = runs
    return next((found for other in others if (found := _difference(first, other))), "")


def _claim(
    candidate: Candidate, before: Sequence[RecordedRun], after: Sequence[RecordedRun]
) -> tuple[Claim | None, str]:
    own = equal_to_itself(before)
    if own:
        return None, f"the script does not repeat itself from launch to launch ({own}), so nothing can be proved equal"
    found = next((text for run in after if (text := _difference(before[0], run))), "")
    if found:
        return Claim.CHANGES, f"the training changes: {found}"
    more = next((text for run in after if (text := beyond(before[0], run))), "") or _other_numbers(before, after)
    claim = max(candidate.claim, Claim.BEHAVIOUR if more else Claim.EXACT, key=_ORDER.index)
    return claim, more


def _difference(one: RecordedRun, other: RecordedRun) -> str:
    """How two trainings differ; '' if they are bit-identical."""
    a, b = one.record, other.record
    if a is None or b is None:
        return "one of the launches was not recorded"
    if a.steps != b.steps:
        return f"{format_count(a.steps, 'step')} and {b.steps}"
    if one.batches != other.batches:
        at = next((i for i, (x, y) in enumerate(zip(one.batches, other.batches, strict=False)) if x != y), 0)
        return f"the batch of step {at + 1}"
    if a.roots != b.roots:
        first = next((i for i, (x, y) in enumerate(zip(a.roots, b.roots, strict=False)) if x != y), None)
        return f"the loss of backward call {first + 1}" if first is not None else "how often backward is called"
    changed = [name for name in a.state if a.state[name] != b.state.get(name)]
    return f"{', '.join(changed)} at the end" if changed else ""


def beyond(one: RecordedRun, other: RecordedRun) -> str:
    """How the files or the printed lines of two equal trainings differ; '' if they do not."""
    a, b = one.record, other.record
    assert a is not None
    assert b is not None
    if a.files != b.files:
        fewer, more = sorted(a.files.keys() - b.files.keys()), sorted(b.files.keys() - a.files.keys())
        if fewer or more:
            names = [f"without {path}" for path in fewer] + [f"with {path}" for path in more]
            return f"it writes different files: {', '.join(names[:_MOST_NAMED])}"
        return "it writes files of different sizes"
    # a warning may go away together with its cause
    warned = set(filter(WARNED.search, other.printed)) - set(one.printed)
    if warned or _unwarned(one) != _unwarned(other):
        return "it prints different lines"
    return ""


def _unwarned(run: RecordedRun) -> list[str]:
    return [line for line in run.printed if not WARNED.search(line)]


def _other_numbers(before: Sequence[RecordedRun], after: Sequence[RecordedRun]) -> str:
    """A difference in a number that the original script prints in each run; '' if there is none.

    Times differ from run to run, and a number of few digits may be equal by chance.
    """
    first = before[0].numbers
    if any(len(run.numbers) != len(first) for run in (*before, *after)):
        return ""
    for index, number in enumerate(first):
        # 17:24 is a time of day
        is_long = sum(map(str.isdigit, number)) >= _DIGITS and ":" not in number
        is_result = is_long and all(run.numbers[index] == number for run in before)
        other = next((run.numbers[index] for run in after if run.numbers[index] != number), None)
        if is_result and other is not None:
            return f"it prints {other} where it printed {number}"
    return ""


def _gain(before: Sequence[RecordedRun], after: Sequence[RecordedRun]) -> GainSpan | None:
    old, new = [run.step_s for run in before if run.steps], [run.step_s for run in after if run.steps]
    if not old or not new:
        return None
    middle = (sum(old) / len(old)) / (sum(new) / len(new))
    old_pieces, new_pieces = ([piece for run in side for piece in run.pieces_s] for side in (before, after))
    low = min([*old, *old_pieces]) / max([*new, *new_pieces])
    high = max([*old, *old_pieces]) / min([*new, *new_pieces])
    return GainSpan(middle, low, high, min(old) / max(new))


def _peaks(runs: Sequence[RecordedRun]) -> list[int]:
    return [run.peak_bytes for run in runs if run.peak_bytes is not None]


def _faster(span: GainSpan, digested: int | None) -> str:
    """The ratio, its steps and bounds; if parts of launches overlap, the bound of whole launches comes first."""
    told = f"{span.middle:.2f} times as fast" + (f" from step {digested + 1} on" if digested else "")
    if span.sure is None or span.low > 1:
        return f"{told} ({span.low:.2f} to {span.high:.2f})"
    return f"{told}, at least {span.sure:.2f} between whole launches (parts of them: {span.low:.2f} to {span.high:.2f})"


def describe(proof: FixProof) -> str:
    """One sentence: how much better, and what was compared."""
    parts = []
    if proof.lives:
        parts.append("it no longer runs out of memory")
    if (proof.is_faster or proof.without_limit) and proof.gain is not None:
        parts.append(_faster(proof.gain, proof.digested))
    if (proof.saves or proof.lives) and proof.peak_before and proof.peak_after:
        before = "without the limit" if proof.without_limit else "before"
        parts.append(f"peak memory {format_bytes(proof.peak_after)}, {format_bytes(proof.peak_before)} {before}")
    what = f"over {format_count(proof.steps, 'step')}"
    if proof.boundaries:
        what += f" and {proof.boundaries} epoch boundar{'y' if proof.boundaries == 1 else 'ies'}"
    if proof.rounding is not None:
        bound = proof.rounding
        over = f"over {format_count(bound.steps, 'backward call')}"
        same = "random numbers" if proof.candidate.other_batches else "batches and random numbers"
        parts.append(
            f"losses up to {bound.distance:.1e} apart {over}, of {bound.allowed:.1e} that control runs allow; {same} "
            "are bit-identical"
        )
    elif proof.lives and not proof.without_limit:
        parts.append(f"losses are bit-identical {what}, until it crashed")
    elif proof.digested is None:
        parts.append(f"losses, batches, parameters, optimizer and random numbers are bit-identical {what}")
    else:
        first = f"the batches of the first {proof.digested}"
        parts.append(f"losses, parameters, optimizer and random numbers are bit-identical {what}, and {first}")
    return "; ".join(parts) + f" ({proof.launches} launches)"
