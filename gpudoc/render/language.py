"""The language of a screen: that of the question, where there are sentences for it."""

from __future__ import annotations

from collections.abc import Callable

from gpudoc.doctor.model import Report
from gpudoc.facts.readers.model import ENGLISH

# how a template of a screen is said with its values
Say = Callable[..., str]


def in_own_language(report: Report) -> tuple[Report, Say]:
    """The report in the language of its question, and how the words around it are said; English reads nothing."""
    if report.language == ENGLISH:
        return report, str.format
    from gpudoc.doctor.translation import translate
    from gpudoc.knowledge.translations import translation

    return translate(report), translation(report.language).say
