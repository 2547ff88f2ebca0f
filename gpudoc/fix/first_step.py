"""A script that runs out of memory before there are steps to look at: what it needs, and which change lets it run.

If the machine has the memory, the same script shows its steps without the limit: the changed script under the limit is
compared with those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpudoc.facts.host import memory_free_bytes
from gpudoc.facts.model import Absent
from gpudoc.fix.model import Claim, RunEvidence, name_of
from gpudoc.fix.proof import FixProof
from gpudoc.script.look import ScriptLook
from gpudoc.units import format_bytes

# the share of free memory that a launch without the limit may take
_OF_FREE = 0.7
_TIMES = 3


@dataclass(frozen=True, slots=True)
class FirstStep:
    """The death of a script after `steps`: the limit, and the bytes that launches without the limit may take."""

    evidence: RunEvidence
    steps: int
    limit_bytes: int
    room_bytes: int


def room_beyond(limit_bytes: int | None) -> int | None:
    """Bytes that a launch without the limit may take; None without a limit, or if the machine has less memory."""
    free = memory_free_bytes()
    if limit_bytes is None or isinstance(free, Absent):
        return None
    room = int(_OF_FREE * free)
    return room if room > limit_bytes else None


def describe_death(first: FirstStep, look: ScriptLook) -> str:
    """Where the script died, and the memory that its steps need without the limit."""
    died = first.evidence.died_at
    at = "" if died is None else f" at {name_of(died.file)}:{died.line}"
    when = "in its first step" if not first.steps else f"after {first.steps} steps"
    peak = look.peak_bytes
    needs = "" if peak is None else f"; without the limit its steps take at least {format_bytes(peak)}"
    return f"under {format_bytes(first.limit_bytes)} it runs out of memory{at} {when}{needs}"


def judge_first_step(proof: FixProof, first: FirstStep, steps: int) -> FixProof:
    """The proof of runs under the limit against runs without it; no claim if the changed script ran too short."""
    if proof.claim in (None, Claim.CHANGES):
        return proof
    if steps < _TIMES * max(1, first.steps):
        return replace(
            proof, claim=None, why="the changed script did not run three times as many steps within the budget"
        )
    return replace(proof, lives=True, without_limit=True)
