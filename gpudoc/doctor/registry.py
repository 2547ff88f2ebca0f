"""The explicit list of everything doctor knows: catalogue rows by id, and the finders in the order they are asked."""

from __future__ import annotations

from collections.abc import Mapping

from gpudoc.doctor.catalogue import environment
from gpudoc.doctor.model import Cause, Finder

CAUSES: tuple[Cause, ...] = (*environment.CAUSES,)

CATALOGUE: Mapping[str, Cause] = {cause.id: cause for cause in CAUSES}

FINDERS: tuple[Finder, ...] = ()
