"""The explicit list of everything doctor knows: catalogue rows by id, and the finders in the order they are asked."""

from __future__ import annotations

from collections.abc import Mapping

from gpudoc.doctor.catalogue import environment, machine
from gpudoc.doctor.causes import builds, chain, hardware, installed, limits
from gpudoc.doctor.model import Cause, Finder

CAUSES: tuple[Cause, ...] = (*environment.CAUSES, *machine.CAUSES)

CATALOGUE: Mapping[str, Cause] = {cause.id: cause for cause in CAUSES}

FINDERS: tuple[Finder, ...] = (
    *chain.FINDERS,
    *builds.FINDERS,
    *installed.FINDERS,
    *hardware.FINDERS,
    *limits.FINDERS,
)
