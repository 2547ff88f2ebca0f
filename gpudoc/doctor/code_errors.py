"""Errors of a program's own code and what is found of its machine: which of them explains the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpudoc.doctor.model import RANK, Cause, Finding
from gpudoc.facts.readers.model import Reading

# an error of code is explained by a finding that is proven, or not much less sure, and rests on the same exception
_PROVEN, _DOUBT_OF_CODE = 0.6, 0.25


def with_code(found: list[Finding], catalogue: Mapping[str, Cause], reading: Reading | None) -> list[Finding]:
    """The findings with an error of the program's code behind what is proven of the machine, and without candidates.

    Where another finding rests on the same exception, that one explains it.
    """
    code = [f for f in found if is_of_code(f, catalogue)]
    if not code or reading is None:
        return found
    others = [f for f in found if f not in code]
    code = [f for f in code if not any(_explains_exception(other, f, reading) for other in others)]
    if any(f.severity == "broken" for f in code):
        others = [f for f in others if f.confidence >= _PROVEN or f.severity == "info"]
    return sorted((*others, *code), key=lambda f: RANK[f.severity])


def _explains_exception(other: Finding, code: Finding, reading: Reading) -> bool:
    """Whether a finding about the machine quotes a line of the exception that is taken for an error of the code."""
    if other.confidence < min(_PROVEN, code.confidence - _DOUBT_OF_CODE) or other.severity == "info":
        return False
    return not origins_of([code], reading).isdisjoint(o.origin for o in other.evidence)


def origins_of(findings: Sequence[Finding], reading: Reading) -> set[str]:
    """The origins of what findings quote, and of all lines of the exceptions among it."""
    seen = {o.origin for finding in findings for o in finding.evidence}
    lines = reading.text.lines
    spans = [{line.origin for line in lines[chain.first : chain.last + 1]} for chain in reading.failures]
    return seen.union(*(span for span in spans if not span.isdisjoint(seen)))


def is_of_code(finding: Finding, catalogue: Mapping[str, Cause]) -> bool:
    """Whether its cause lies in the program's own code."""
    return finding.id in catalogue and catalogue[finding.id].family == "code"
