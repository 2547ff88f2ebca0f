"""People's statements about a training, as facts: marked lists of vocabulary.yaml, and how times change."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from gpudoc.doctor.causes.sign import Listed
from gpudoc.facts.readers.model import CleanText, Line
from gpudoc.facts.readers.pace import read_pace
from gpudoc.knowledge.signature_rows import stated_lists

# a text without one of these contains no times
_TIMED = ("epoch", "iter", "step", "it/s", "轮", "эпох", "шаг")


@functools.cache
def _lists() -> Mapping[str, Listed]:
    return {name: Listed(name) for name in stated_lists()}


def stated(text: CleanText) -> dict[str, Line]:
    """The facts that a text states, each with the line that states it."""
    found = {name: mention.line for name, words in _lists().items() if (mention := text.find(words)) is not None}
    pace = read_pace(text.lines) if any(word in text.lowered for word in _TIMED) else None
    if pace is not None:
        signs = {"times-grow": pace.grew, "times-fall": pace.fell, "times-jump": pace.jumped}
        found |= {name: pace.times[-1].line for name, is_so in signs.items() if is_so}
    return found
