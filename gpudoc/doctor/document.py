"""A Report as the JSON document gpudoc.doctor.v1, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast, get_args

from gpudoc.doctor.model import (
    Card,
    Crashed,
    Finding,
    Observation,
    Remedy,
    Report,
    Severity,
    Skipped,
    Source,
    Verdict,
)
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.model import NOT_READ, Absent
from gpudoc.facts.readers import snapshot

SCHEMA = "gpudoc.doctor.v1"


def dump(report: Report) -> dict[str, object]:
    """The document of the report; `from` names where a fact was read, `facts` holds the machine."""
    return {
        "schema": SCHEMA,
        "source": report.source,
        "verdict": report.verdict,
        "findings": [dump_finding(f) for f in report.findings],
        "passed": list(report.passed),
        "skipped": [{"id": s.id, "because": s.because} for s in report.skipped],
        "crashed": [{"id": c.id, "error": c.error} for c in report.crashed],
        "unexplained": [_dump_observation(o) for o in report.unexplained],
        "deciding_facts": list(report.deciding_facts),
        "recognised": list(report.recognised),
        "facts": snapshot.dump(report.machine),
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
        return _load(document)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise GpudocError(
            f"{name} is not a whole {SCHEMA} document: {problem}", hint="make it again with `gpudoc doctor --json`"
        ) from problem


def _load(document: Mapping[str, object]) -> Report:
    seconds = _mapping(document.get("seconds", {}))
    probe = _mapping(seconds.get("probe", {}))
    times = {"total": seconds.get("total", 0.0), **probe}
    return Report(
        source=cast(Source, _one_of(document["source"], get_args(Source))),
        verdict=cast(Verdict, _one_of(document["verdict"], get_args(Verdict))),
        findings=tuple(load_finding(_mapping(f)) for f in _list(document["findings"])),
        passed=_texts(document.get("passed", [])),
        skipped=tuple(
            Skipped(str(_mapping(s)["id"]), str(_mapping(s)["because"])) for s in _list(document.get("skipped", []))
        ),
        crashed=tuple(
            Crashed(str(_mapping(c)["id"]), str(_mapping(c)["error"])) for c in _list(document.get("crashed", []))
        ),
        machine=snapshot.load(_mapping(document.get("facts", {}))),
        seconds={key: float(value) for key, value in times.items() if isinstance(value, int | float)},
        unexplained=tuple(_load_observation(_mapping(o)) for o in _list(document.get("unexplained", []))),
        deciding_facts=_texts(document.get("deciding_facts", [])),
        recognised=_texts(document.get("recognised", [])),
    )


def plain_remedy(remedy: Remedy) -> dict[str, object]:
    """One step of a fix as every document writes it."""
    return {
        "say": remedy.say,
        "run": remedy.run,
        "needs_root": remedy.needs_root,
        "disruptive": remedy.disruptive,
    }


def dump_finding(finding: Finding) -> dict[str, object]:
    """One finding as every document of doctor writes it."""
    return {
        "id": finding.id,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "title": finding.title,
        "why": finding.why,
        "evidence": [_dump_observation(o) for o in finding.evidence],
        "fix": [plain_remedy(r) for r in finding.fix],
        "explains": list(finding.explains),
        "cards": [_dump_card(card) for card in finding.cards],
        "url": finding.url,
    }


def _dump_card(card: Card) -> dict[str, object]:
    named = {"index": card.index, "pci_address": card.pci_address, "uuid": card.uuid}
    return {name: value for name, value in named.items() if not isinstance(value, Absent)}


def _load_card(plain: Mapping[str, object]) -> Card:
    index, address, uuid = plain.get("index"), plain.get("pci_address"), plain.get("uuid")
    return Card(
        index=index if isinstance(index, int) else NOT_READ,
        pci_address=str(address) if address else NOT_READ,
        uuid=str(uuid) if uuid else NOT_READ,
    )


def _dump_observation(observation: Observation) -> dict[str, object]:
    return {"fact": observation.fact, "value": observation.value, "from": observation.origin}


def load_finding(plain: Mapping[str, object]) -> Finding:
    """The finding of `dump_finding`'s result; KeyError or ValueError when it is none."""
    confidence = plain["confidence"]
    if not isinstance(confidence, int | float):
        raise ValueError("confidence is not a number")
    return Finding(
        id=str(plain["id"]),
        severity=cast(Severity, _one_of(plain["severity"], get_args(Severity))),
        confidence=float(confidence),
        title=str(plain.get("title", "")),
        why=str(plain.get("why", "")),
        evidence=tuple(_load_observation(_mapping(o)) for o in _list(plain.get("evidence", []))),
        fix=tuple(_load_remedy(_mapping(r)) for r in _list(plain.get("fix", []))),
        explains=_texts(plain.get("explains", [])),
        cards=tuple(_load_card(_mapping(c)) for c in _list(plain.get("cards", []))),
        url=str(plain.get("url", "")),
    )


def _load_remedy(plain: Mapping[str, object]) -> Remedy:
    return Remedy(
        say=str(plain.get("say", "")),
        run=str(plain.get("run", "")),
        needs_root=bool(plain.get("needs_root", False)),
        disruptive=bool(plain.get("disruptive", False)),
    )


def _load_observation(plain: Mapping[str, object]) -> Observation:
    return Observation(str(plain.get("fact", "")), str(plain.get("value", "")), str(plain.get("from", "")))


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"an object was expected, not {type(value).__name__}")
    return value


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise ValueError(f"a list was expected, not {type(value).__name__}")
    return value


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in _list(value))


def _one_of(value: object, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{value!r} is not one of {', '.join(allowed)}")
    return str(value)
