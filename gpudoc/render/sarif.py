"""Doctor's report as SARIF 2.1.0, which code hosts, editors and CI servers show at the line of the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import gpudoc
from gpudoc.doctor.model import Finding, Observation, Report, Severity
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.facts.redact import Redactor
from gpudoc.patterns import Pattern
from gpudoc.reading import is_file
from gpudoc.render.doctor import headline, marked

VERSION = "2.1.0"
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_UNKNOWN = "unknown"
_UNEXPLAINED = "Something is wrong, and no cause explains it"
_LEVEL: Mapping[Severity, str] = {"broken": "error", "warning": "warning", "info": "note"}
# 'line 5', 'train.log line 5', 'line 2 to 5'
_LINE = Pattern(r"(?:(.{1,200}) )?line (\d{1,9})\b")

Place = tuple[str, int]


def find_places(report: Report, sources: Sequence[str], root: Path) -> tuple[tuple[Place, ...], ...]:
    """The places of each finding, or of the unexplained signs if there is none: file below `root` and line.

    A place is the line of the user's code if one is known, else that of the log. None for pasted text or this machine.
    """
    seen = [finding.evidence for finding in report.findings] or [report.unexplained]
    return tuple(tuple(_places(evidence, sources, root)) for evidence in seen)


def render_sarif(report: Report, places: Sequence[Sequence[Place]]) -> dict[str, object]:
    """The document of a report that may leave this machine, with the places that `find_places` found."""
    results = [_result(finding, place) for finding, place in zip(report.findings, places, strict=False)]
    rules = {finding.id: _rule(finding) for finding in report.findings}
    if not report.findings and report.verdict == _UNKNOWN:
        seen = "; ".join(o.value for o in report.unexplained)
        text = f"{headline(report)}: {seen}" if seen else headline(report)
        message = {"ruleId": _UNKNOWN, "level": "warning", "message": {"text": text}}
        results = [{**message, **_locations(places[0])}]
        rules = {_UNKNOWN: {"id": _UNKNOWN, "shortDescription": {"text": _UNEXPLAINED}}}
    return sarif_log(list(rules.values()), results, succeeded=not report.crashed)


def sarif_log(rules: Sequence[object], results: Sequence[object], *, succeeded: bool) -> dict[str, object]:
    """The document of these results; `succeeded` says whether the command finished."""
    driver = {"name": "gpudoc", "semanticVersion": gpudoc.__version__, "rules": list(rules)}
    invocation = {"executionSuccessful": succeeded}
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "results": list(results),
        "columnKind": "utf16CodeUnits",
    }
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def _places(evidence: Sequence[Observation], sources: Sequence[str], root: Path) -> Iterator[Place]:
    coded = [(address_below(seen.file, root), seen.line) for seen in evidence if seen.file and seen.line]
    if coded:
        yield coded[0]
        return
    logs = {Path(source).name: source for source in sources if is_file(source)}
    for seen in evidence:
        found = _LINE.match(seen.origin)
        log = logs.get(found[1]) if found and found[1] else next(iter(logs.values()), None)
        if found is not None and log is not None:
            yield address_below(log, root), int(found[2])
            return
    # a report always names its file
    yield from ((address_below(log, root), 1) for log in list(logs.values())[:1])


def address_below(file: str, root: Path) -> str:
    """The file as an address below `root`; a file of another machine is found by the end of its path."""
    parts = [part for part in file.replace("\\", "/").split("/") if part not in ("", ".")]
    for begin in range(len(parts)):
        if ".." not in parts[begin:] and root.joinpath(*parts[begin:]).is_file():
            return quote("/".join(parts[begin:]))
    is_absolute = file.startswith("/") or ":" in parts[0]
    return quote(Redactor.of_this_process().text(parts[-1] if is_absolute else "/".join(parts)))


def _result(finding: Finding, places: Sequence[Place]) -> dict[str, object]:
    steps = [f"fix: {marked(remedy)}{f' {remedy.run}' if remedy.run else ''}" for remedy in finding.fix]
    said = {
        "ruleId": finding.id,
        "level": _LEVEL[finding.severity],
        "message": {"text": "\n".join([f"{finding.title}. {finding.why}".rstrip(), *steps])},
        "rank": round(100 * finding.confidence, 1),
        "properties": {"isGuess": finding.is_guess, "evidence": [f"{o.fact}: {o.value}" for o in finding.evidence]},
    }
    return {**said, **_locations(places)}


def _locations(places: Sequence[Place]) -> dict[str, object]:
    return {"locations": [location_of(*place) for place in places]} if places else {}


def location_of(file: str, line: int) -> dict[str, object]:
    """A place as a location of a result; `file` is an address below the root."""
    return {"physicalLocation": {"artifactLocation": {"uri": file}, "region": {"startLine": line}}}


def _rule(finding: Finding) -> dict[str, object]:
    cause = CATALOGUE.get(finding.id)
    address = {"helpUri": finding.url} if finding.url else {}
    short, text = (cause.title, cause.meaning) if cause else (finding.title, finding.why or finding.title)
    return {"id": finding.id, "shortDescription": {"text": short}, "fullDescription": {"text": text}, **address}
