"""What a text is judged to be: the ids of its findings, most likely first."""

from __future__ import annotations

from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence, Report
from gpudoc.facts.readers import read


def report_of(text: str) -> Report:
    reading = read(text)
    report = diagnose(Evidence(source="file", machine=reading.machine, reading=reading))
    assert not report.crashed
    return report


def ids(text: str) -> list[str]:
    return [finding.id for finding in report_of(text).findings]


def named(text: str) -> list[str]:
    return [finding.id for finding in report_of(text).findings if finding.severity != "info"]


def first(text: str) -> str:
    return (ids(text) or ["none"])[0]
