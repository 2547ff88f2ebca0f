"""Exceptions that a sentence or a title of a post quotes, without a traceback or above one that is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpudoc.facts.readers.python_errors import ErrorChain, PythonError
from gpudoc.patterns import Pattern

if TYPE_CHECKING:
    from gpudoc.facts.readers.model import Line

_QUOTES = ("`", "'", '"')
_SAID = Pattern(r"(?<![\w.])((?:[a-z_]\w*\.){0,6}[A-Z]\w*(?:Error|Exception))['\"`]?: ?(\S.*)$")


def quoted(lines: Sequence[Line]) -> list[ErrorChain]:
    """An exception that a sentence quotes."""
    for place, line in enumerate(lines):
        found = _SAID.search(line.text) if "rror" in line.text or "xception" in line.text else None
        if found is not None:
            message = _unquoted(found[2], line.text[: found.start()][-1:])
            error = PythonError(kind=found[1], message=message, origin=line.origin, first=place, last=place)
            return [ErrorChain(errors=(error,))]
    return []


def ended_by_title(chain: ErrorChain, titled: PythonError) -> ErrorChain:
    """The chain with its cut traceback ended by the exception that the title names, where it is the one passed on."""
    cut, passed_on = chain.errors[-1], {error.name for error in chain.errors if error.kind}
    if cut.kind or not cut.frames or (passed_on and passed_on != {titled.name}):
        return chain
    message = titled.message.rpartition(f"{titled.name}: ")[2]
    named = replace(cut, kind=titled.kind, message=message, origin=titled.origin)
    return replace(chain, errors=(*chain.errors[:-1], named))


def _unquoted(message: str, before: str) -> str:
    """The message without the end of the quotation that begins before it, and what a sentence says behind that."""
    if before not in _QUOTES or message.count(before) % 2 == 0:
        return message.rstrip()
    end = message.rfind(before) if before == "`" or message.rstrip(" .,;?!").endswith(before) else len(message)
    return message[:end].rstrip()
