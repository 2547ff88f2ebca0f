"""A Report as the JSON document gpudoc.doctor.v1, and back."""

from __future__ import annotations

from collections.abc import Mapping

from gpudoc.doctor.model import Card, Finding, Report, Severity
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.model import Absent
from gpudoc.facts.readers.snapshot import dump_facts, load_facts

SCHEMA = "gpudoc.doctor.v1"


def dump(report: Report) -> dict[str, object]:
    """The document of the report; `from` names where a fact was read, `facts` holds the machine."""
    plain = dump_facts(report)
    return {
        "schema": SCHEMA,
        **plain,
        "findings": [dump_finding(finding) for finding in report.findings],
        "facts": plain.get("facts", {}),
        "seconds": {
            "total": round(report.seconds.get("total", 0.0), 4),
            "probe": {name: round(s, 4) for name, s in report.seconds.items() if name != "total"},
        },
    }


def exit_code(report: Report, fail_on: Severity = "broken") -> ExitCode:
    """0 for healthy or warnings only, 1 for broken or unknown; with `fail_on` 'warning' also for warnings."""
    bad = report.verdict in ("broken", "unknown") or (fail_on == "warning" and report.verdict == "warning")
    return ExitCode.BAD_ANSWER if bad else ExitCode.OK


def load(document: Mapping[str, object], *, name: str = "the document") -> Report:
    """The report of a document; GpudocError when its schema is not one that this version reads."""
    schema = document.get("schema")
    if schema != SCHEMA:
        hint = "use the gpudoc that wrote it, or make it again with `gpudoc doctor --json`"
        if str(schema).startswith("gpudoc.fleet."):
            hint = "the record of a fleet is judged from a file: gpudoc doctor fleet.json"
        raise GpudocError(f"{name} has schema {schema!r}; this gpudoc reads {SCHEMA}", hint=hint)
    try:
        return load_facts(Report, {**document, "seconds": _seconds(document.get("seconds"))})
    except (TypeError, ValueError) as problem:
        raise GpudocError(
            f"{name} is not a whole {SCHEMA} document: {problem}", hint="make it again with `gpudoc doctor --json`"
        ) from problem


def _seconds(written: object) -> Mapping[str, float]:
    """The total and each probe's; what is no number is left out."""
    seconds = written if isinstance(written, Mapping) else {}
    probe = seconds.get("probe")
    times = {"total": seconds.get("total"), **(probe if isinstance(probe, Mapping) else {})}
    return {key: float(value) for key, value in times.items() if isinstance(value, int | float)}


def dump_finding(finding: Finding) -> dict[str, object]:
    """One finding as every document of doctor writes it."""
    return {**dump_facts(finding), "cards": [_dump_card(card) for card in finding.cards]}


def _dump_card(card: Card) -> dict[str, object]:
    named = {"index": card.index, "pci_address": card.pci_address, "uuid": card.uuid}
    return {name: value for name, value in named.items() if not isinstance(value, Absent)}


def load_finding(plain: Mapping[str, object]) -> Finding:
    """The finding of `dump_finding`'s result; ValueError when it is none."""
    return load_facts(Finding, plain)
