"""Where doctor's report goes: the screen, one JSON document, Markdown to paste, a page, a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudoc.doctor import document
from gpudoc.doctor.model import Finding, Report
from gpudoc.facts.redact import Redactor
from gpudoc.render import console
from gpudoc.render.doctor import headline, render
from gpudoc.render.page import Note, Section, Table, page, save_page
from gpudoc.writing import write_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What the user wants to see and keep; `redact` takes out of what is written what says who and where."""

    json: bool = False
    markdown: bool = False
    html: Path | None = None
    out: Path | None = None
    verbose: bool = False
    plain: bool = False
    redact: bool = True


def private(plain: Mapping[str, object], output: Output, redactor: Redactor | None = None) -> dict[str, object]:
    """The document as it may leave the machine: without what says who and where, unless the user wants it whole."""
    if not output.redact:
        return dict(plain)
    clean = (redactor or Redactor.of_this_process()).document(plain)
    assert isinstance(clean, dict)
    return clean


def show(report: Report, output: Output) -> None:
    """Print and write the report; GpudocError when a file cannot be written."""
    kept = private(document.dump(report), output)
    clean = document.load(kept) if output.redact else report
    if output.html is not None:
        save_page(output.html, render_page(clean))
    if output.out is not None:
        _save(output.out, clean, kept)
    if output.json:
        console.print_json(kept)
    elif output.markdown:
        console.stdout(plain=True).print(render_markdown(clean), end="", soft_wrap=True)
    else:
        console.stdout(plain=output.plain).print(render(report, verbose=output.verbose), end="", soft_wrap=True)


def render_markdown(report: Report) -> str:
    """The report as Markdown for an issue: verdict, findings with evidence and commands."""
    lines = [f"**gpudoc doctor: {report.verdict}**", "", headline(report), ""]
    for finding in report.findings:
        lines += [
            f"### {finding.title}",
            "",
            f"`{finding.id}`, {finding.severity}, {finding.confidence:.0%} sure. {finding.why}",
            "",
        ]
        lines += [f"- {o.fact}: `{_in_code(o.value)}` ({o.origin})" for o in finding.evidence]
        for title in finding.explains:
            lines.append(f"- explains: {title}")
        for remedy in finding.fix:
            lines += ["", remedy.say]
            if remedy.run:
                lines += ["```sh", remedy.run, "```"]
        lines.append("")
    for seen in report.unexplained:
        lines.append(f"- {seen.fact}: `{_in_code(seen.value)}` ({seen.origin})")
    for fact in report.deciding_facts:
        lines.append(f"- would decide it: {fact}")
    lines.append(f"{len(report.passed)} checks passed, {len(report.skipped)} not checked.")
    return "\n".join(lines) + "\n"


def render_page(report: Report) -> str:
    """The report as a self-contained HTML page."""
    sections = [
        Section("Findings", tuple(_note(f) for f in report.findings) or (Note(kind="good", title="No problem found"),))
    ]
    if report.unexplained or report.deciding_facts:
        seen = tuple(f"{o.value} ({o.origin})" for o in report.unexplained)
        decide = tuple(f"would decide it: {fact}" for fact in report.deciding_facts)
        sections.append(Section("Not explained", (Note(kind="warning", title="Seen", points=(*seen, *decide)),)))
    evidence = [(f.id, o.fact, o.value, o.origin) for f in report.findings for o in f.evidence]
    if evidence:
        sections.append(
            Section("Evidence", (Table(headings=("cause", "fact", "value", "read in"), rows=tuple(evidence)),))
        )
    checks = [(name, "passed") for name in report.passed]
    checks += [(s.id, f"not checked: {s.because}") for s in report.skipped]
    checks += [(c.id, f"crashed: {c.error}") for c in report.crashed]
    if checks:
        sections.append(Section("Checks", (Table(headings=("check", "result"), rows=tuple(checks)),)))
    return page(f"gpudoc doctor: {report.verdict}", sections, lead=headline(report))


def _note(finding: Finding) -> Note:
    said: Sequence[str] = [r.say for r in finding.fix]
    return Note(
        kind=finding.severity,
        title=f"{finding.title} ({finding.confidence:.0%} sure)",
        text=finding.why,
        points=(*said, *(f"explains: {title}" for title in finding.explains)),
        commands=tuple(r.run for r in finding.fix if r.run),
    )


def _save(path: Path, report: Report, kept: dict[str, object]) -> None:
    match path.suffix.lower():
        case ".json":
            text = json.dumps(kept, indent=2, ensure_ascii=False) + "\n"
        case ".md" | ".markdown":
            text = render_markdown(report)
        case ".html" | ".htm":
            text = render_page(report)
        case _:
            text = render(report, verbose=True)
    write_whole(path, text, hint="name a file in a folder that exists")


def _in_code(text: str) -> str:
    return text.replace("`", "'")
