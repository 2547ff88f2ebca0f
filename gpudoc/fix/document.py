"""The result of `fix` as a JSON document (gpudoc.fix.v1)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from gpudoc.fix.model import Claim, name_of
from gpudoc.fix.proof import FixProof, describe
from gpudoc.fix.result import FixResult

FIX = "gpudoc.fix.v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class FixChange:
    """One change that was tried: `claim` is how much stayed as it was, None if nothing could be compared.

    `gain` is how many times as fast, with the lowest and the highest ratio, in the steps after the first `digested`
    steps, whose batches were compared (None: in all steps); bytes are those of the memory peak.
    """

    rewrite: str
    file: str
    line: int
    claim: str | None
    proof: str
    why: str
    gain: tuple[float, float, float] | None
    peak_before: int | None
    peak_after: int | None
    steps: int
    digested: int | None
    besides: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FixRefusal:
    """A rewrite that fits a place but would or could be wrong there."""

    rewrite: str
    file: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FixLine:
    """A line and its share, 0 to 1: of a step's time, with the lines that it calls, or of the model's input."""

    file: str
    line: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FixLoop:
    """A loop (`line` to `last_line`): its `passes` in a step take `share` of it, 0 to 1, and `pass_s` seconds each."""

    file: str
    line: int
    last_line: int
    share: float
    passes: float
    pass_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FixSummary:
    """The whole answer: `diff` is for `patch -p1`, `environment` for the start of the command.

    `steps` of the original script were looked at: they spend their time at `lines`, the largest share first, and wait
    `wait_share` of it for data. `loops`, if nothing is accepted: many short passes in Python that one call over all
    of them may replace, unless a pass needs the one before it; nothing was tried there. `padding`: the lines of the
    original script that call the model, with the share of its input that no sample of the batch needs.
    """

    command: str
    accepted: tuple[FixChange, ...]
    lost: tuple[FixChange, ...]
    refused: tuple[FixRefusal, ...]
    diff: str
    environment: Mapping[str, str]
    steps: int
    wait_share: float | None
    lines: tuple[FixLine, ...]
    loops: tuple[FixLoop, ...]
    padding: tuple[FixLine, ...]
    unequal: str
    untried: int
    written: tuple[str, ...]
    launches: int
    seconds: float
    notes: tuple[str, ...]


def document(result: FixResult) -> dict[str, object]:
    """The document; paths below the folder in which fix was started are relative to it."""
    summary = FixSummary(
        command=shlex.join(result.options.command),
        accepted=tuple(map(_change, result.accepted)),
        lost=tuple(map(_change, result.lost)),
        refused=tuple(
            FixRefusal(rewrite=one.rewrite, file=name_of(one.file), line=one.line, reason=one.reason)
            for one in result.refused
        ),
        diff=result.diff.decode("utf-8"),
        environment=result.environment,
        steps=0 if result.look is None else result.look.steps,
        wait_share=None if result.look is None else round(result.look.wait_share, 4),
        lines=tuple(
            FixLine(file=name_of(one.file), line=one.line, share=round(one.share, 4)) for one in result.evidence.hot
        ),
        loops=tuple(
            FixLoop(
                file=name_of(one.file),
                line=one.line,
                last_line=one.last_line,
                share=round(one.share, 4),
                passes=round(one.passes, 2),
                pass_s=round(one.pass_s, 9),
            )
            for one in result.short_passes
        ),
        padding=tuple(
            FixLine(file=name_of(one.file), line=one.line, share=one.share) for one in result.evidence.padded
        ),
        unequal=result.unequal,
        untried=result.untried,
        written=tuple(map(name_of, result.written)),
        launches=result.launches,
        seconds=round(result.seconds, 3),
        notes=result.notes,
    )
    return {"schema": FIX, **asdict(summary)}


def _change(proof: FixProof) -> FixChange:
    candidate, span = proof.candidate, proof.gain
    return FixChange(
        rewrite=candidate.rewrite,
        file=name_of(candidate.file),
        line=candidate.line,
        claim=None if proof.claim is None else proof.claim.value,
        proof=describe(proof) if proof.claim not in (None, Claim.CHANGES) and proof.is_gain else "",
        why=proof.why,
        gain=None if span is None else (round(span.middle, 4), round(span.low, 4), round(span.high, 4)),
        peak_before=proof.peak_before,
        peak_after=proof.peak_after,
        steps=proof.steps,
        digested=proof.digested,
        besides=candidate.besides,
    )
