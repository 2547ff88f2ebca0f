"""Everything doctor knows of machines and texts: the causes by id, and the finders in the order they are asked.

A cause is a row of knowledge/causes; what a message alone shows is a row of knowledge/signatures, which `signatures`
finds. What takes arithmetic or a comparison of facts is code: what a file under causes/ exports as FINDERS. Those that
judge a job while it runs are `causes.watched.FINDERS`, those that judge a profiler's trace `causes.traced.FINDERS`:
they come with all that watches and reads traces, and are asked of nothing else.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module

from gpudoc.doctor import causes, signatures
from gpudoc.doctor.catalogue import Catalogue
from gpudoc.doctor.model import Cause, Finder
from gpudoc.errors import GpudocError
from gpudoc.knowledge.cause_rows import own_rows

CATALOGUE: Mapping[str, Cause] = Catalogue(own_rows())


def _finders() -> Iterator[Finder]:
    for module in pkgutil.iter_modules(causes.__path__, f"{causes.__name__}."):
        if "watched" not in module.name and "traced" not in module.name:
            yield from getattr(import_module(module.name), "FINDERS", ())


# a file may hand on another's finders with its own
FINDERS: tuple[Finder, ...] = tuple(dict.fromkeys((*_finders(), *signatures.FINDERS)))


def no_such_cause(name: str) -> GpudocError:
    """The error for an id that the catalogue does not have, with the nearest one, or those that begin with the word."""
    near = get_close_matches(name, CATALOGUE, n=1)
    like = [one for one in CATALOGUE if name and name.lower() in one.split("_")]
    if near:
        hint = f"did you mean {near[0]}?"
    elif like:
        hint = f"one of {', '.join(sorted(like))}"
    else:
        hint = "gpudoc doctor --list"
    return GpudocError(f"no such cause: {name!r}", hint=hint)
