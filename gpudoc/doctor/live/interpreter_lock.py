"""Decide by the interpreter lock whether Python or the device works at lines whose text does not show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpudoc.doctor.live.phases import Phase, Sighting
from gpudoc.facts.model import Absent, Fact
from gpudoc.facts.process import Glance, Stacks

_FEW = 4


def settle(
    known: Mapping[tuple[int, ...], Sighting], stacks: Stacks, glances: Fact[tuple[Glance, ...]], pid: int
) -> dict[tuple[int, ...], Sighting]:
    """The sightings with every `UNCLEAR` decided: Python if the lock was held there, blocked if nothing ran.

    Kernels of torch release the lock while they run, Python code does not; the rest is forward.
    """
    phase = Phase.FORWARD
    if not isinstance(glances, Absent):
        phase = _phase_by_looks(_looks_at_unclear(known, stacks, [g for g in glances if g.pid == pid]))
    return {
        sample: replace(sighting, phase=phase) if sighting.phase is Phase.UNCLEAR else sighting
        for sample, sighting in known.items()
    }


def _looks_at_unclear(known: Mapping[tuple[int, ...], Sighting], stacks: Stacks, glances: list[Glance]) -> list[Glance]:
    unclear = {
        (stacks.frames[sample[-1]].file, stacks.frames[sample[-1]].line)
        for sample, sighting in known.items()
        if sighting.phase is Phase.UNCLEAR and sample
    }
    return [g for g in glances if g.frames and (g.frames[-1].file, g.frames[-1].line) in unclear]


def _phase_by_looks(looks: list[Glance]) -> Phase:
    if len(looks) < _FEW:
        return Phase.FORWARD
    if sum(g.holds_gil for g in looks) >= 0.5 * len(looks):
        return Phase.PYTHON
    return Phase.SLEEP if sum(g.active for g in looks) <= 0.2 * len(looks) else Phase.FORWARD
