"""Lines of which the text does not say whether Python or the device works: settled by who held the interpreter lock."""

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
    """The sightings with every `UNCLEAR` decided: Python when the lock was held there, else forward.

    Kernels of torch let go of the lock while they run, Python code does not.
    """
    share = None if isinstance(glances, Absent) else _lock_share(known, stacks, [g for g in glances if g.pid == pid])
    phase = Phase.PYTHON if share is not None and share >= 0.5 else Phase.FORWARD
    return {
        sample: replace(sighting, phase=phase) if sighting.phase is Phase.UNCLEAR else sighting
        for sample, sighting in known.items()
    }


def _lock_share(known: Mapping[tuple[int, ...], Sighting], stacks: Stacks, glances: list[Glance]) -> float | None:
    unclear = {
        (stacks.frames[sample[-1]].file, stacks.frames[sample[-1]].line)
        for sample, sighting in known.items()
        if sighting.phase is Phase.UNCLEAR and sample
    }
    held = [g.holds_gil for g in glances if g.frames and (g.frames[-1].file, g.frames[-1].line) in unclear]
    return sum(held) / len(held) if len(held) >= _FEW else None
