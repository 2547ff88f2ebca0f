"""A report in the language of the question: titles, reasons and steps; ids, commands and quoted lines stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpudoc.doctor.model import Finding, Remedy, Report
from gpudoc.facts.readers.model import ENGLISH, Language
from gpudoc.knowledge.translations import Translation, translation


def translate(report: Report) -> Report:
    """The report with the sentences that its language has; the rest stays English."""
    if report.language == ENGLISH:
        return report
    known = translation(report.language)
    return replace(
        report,
        findings=tuple(translate_finding(finding, report.language) for finding in report.findings),
        answers=_steps(report.answers, known),
        deciding_facts=tuple(map(known.translate, report.deciding_facts)),
    )


def translate_finding(finding: Finding, language: Language) -> Finding:
    """One finding with the sentences of its cause."""
    known = translation(language)
    return replace(
        finding,
        title=known.title(finding.title, finding.id),
        why=known.translate(finding.why, finding.id),
        fix=_steps(finding.fix, known, finding.id),
        explains=tuple(known.titles.get(title, title) for title in finding.explains),
    )


def _steps(steps: Sequence[Remedy], known: Translation, cause_id: str = "") -> tuple[Remedy, ...]:
    return tuple(replace(step, say=known.translate(step.say, cause_id)) for step in steps)
