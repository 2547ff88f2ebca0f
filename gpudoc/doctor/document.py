"""A Report as the JSON document gpudoc.doctor.v1, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpudoc.doctor.model import Card, Cause, Evidence, Finding, Observation, Report, Setting, observe
from gpudoc.doctor.registry import CATALOGUE, fill
from gpudoc.doctor.setting import describe
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent
from gpudoc.facts.readers.model import ENGLISH, Language
from gpudoc.facts.readers.snapshot import dump_facts, load_facts
from gpudoc.patterns import Pattern

SCHEMA = "gpudoc.doctor.v1"
# an id, or the name of a compared fact
_ID = Pattern(r"[A-Za-z0-9_][A-Za-z0-9_ .,()/-]{0,60}")
_NO_ID = "unknown"
_NOT_SHOWN = "Not shown: written by another version of gpudoc, or by somebody else"


def dump(report: Report) -> dict[str, object]:
    """The document of the report; `from` names the source of a fact, `facts` holds the machine."""
    plain = dump_facts(report)
    return {
        "schema": SCHEMA,
        **plain,
        "findings": [_dump_translated(finding, report.language) for finding in report.findings],
        "facts": plain.get("facts", {}),
        "seconds": {
            "total": round(report.seconds.get("total", 0.0), 4),
            "probe": {name: round(s, 4) for name, s in report.seconds.items() if name != "total"},
        },
    }


def load(document: Mapping[str, object], *, name: str = "the document") -> Report:
    """The report of a document in this version's words; GpudocError if this version does not read its schema.

    A document may come from anybody, so only its ids, figures and facts are used.
    """
    schema = document.get("schema")
    if schema != SCHEMA:
        hint = "use the version of gpudoc that wrote it, or create it again with `gpudoc doctor --json`"
        if str(schema).startswith("gpudoc.fleet."):
            hint = "a fleet record must be a file: gpudoc doctor fleet.json"
        raise GpudocError(f"{name} has schema {schema!r}; this gpudoc reads {SCHEMA}", hint=hint)
    try:
        return _in_own_words(load_facts(Report, {**document, "seconds": _seconds(document.get("seconds"))}))
    except (TypeError, ValueError) as problem:
        raise GpudocError(
            f"{name} is not a complete {SCHEMA} document: {problem}", hint="create it again with `gpudoc doctor --json`"
        ) from problem


def _seconds(written: object) -> Mapping[str, float]:
    """The total seconds and those of each probe; values that are not numbers are left out."""
    seconds = written if isinstance(written, Mapping) else {}
    probe = seconds.get("probe")
    times = {"total": seconds.get("total"), **(probe if isinstance(probe, Mapping) else {})}
    return {key: float(value) for key, value in times.items() if isinstance(value, int | float)}


def dump_finding(finding: Finding) -> dict[str, object]:
    """One finding as it appears in every document of doctor."""
    return {**dump_facts(finding), "cards": [_dump_card(card) for card in finding.cards]}


def _dump_translated(finding: Finding, language: Language) -> dict[str, object]:
    """The finding in English, with its words in the question's language under `translated`."""
    dumped = dump_finding(finding)
    if language == ENGLISH:
        return dumped
    from gpudoc.doctor.translation import translate_finding

    said = translate_finding(finding, language)
    steps = [remedy.say for remedy in said.fix]
    return {**dumped, "translated": {"title": said.title, "why": said.why, "fix": steps}}


def _dump_card(card: Card) -> dict[str, object]:
    named = {"index": card.index, "pci_address": card.pci_address, "uuid": card.uuid}
    return {name: value for name, value in named.items() if not isinstance(value, Absent)}


def load_finding(plain: Mapping[str, object]) -> Finding:
    """The finding of `dump_finding`'s result in this version's words; ValueError if the data is not a finding."""
    return _believed(load_facts(Finding, plain), Setting())


def _in_own_words(report: Report) -> Report:
    setting = describe(Evidence(source=report.source, machine=report.machine))
    return replace(
        report,
        findings=tuple(_believed(finding, setting) for finding in report.findings),
        passed=tuple(filter(_is_id, report.passed)),
        skipped=tuple(one for one in report.skipped if _is_id(one.id)),
        crashed=tuple(one for one in report.crashed if _is_id(one.id)),
        unexplained=tuple(map(_quoted, report.unexplained)),
        deciding_facts=(),
        recognised=tuple(kind for kind in report.recognised if _is_id(kind)),
    )


def _believed(finding: Finding, setting: Setting) -> Finding:
    """The finding with title, reason, steps and source from this version's catalogue, not from the document."""
    seen = replace(
        finding,
        id=finding.id if _is_id(finding.id) else _NO_ID,
        confidence=min(max(finding.confidence, 0.0), 1.0),
        title="",
        why="",
        fix=(),
        url="",
        evidence=tuple(map(_quoted, finding.evidence)),
        explains=_known_titles(finding.explains, CATALOGUE),
    )
    return fill(seen, CATALOGUE, setting) if seen.id in CATALOGUE else replace(seen, title=_NOT_SHOWN)


def _known_titles(titles: Sequence[str], catalogue: Mapping[str, Cause]) -> tuple[str, ...]:
    known = {cause.title for cause in catalogue.values()} if titles else set()
    return tuple(title for title in titles if title in known)


def _quoted(seen: Observation) -> Observation:
    """The observation as one line, so that no screen shows a part of it as a separate line."""
    return observe(" ".join(seen.fact.split()), seen.value, " ".join(seen.origin.split()))


def _is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None
