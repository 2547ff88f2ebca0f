"""Doctor's report as a page: the verdict, the root cause with its commands, the GPUs, every check by area."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoc.doctor.model import Finding, Remedy, Report
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.knowledge.cause_rows import AREAS, area_of
from gpudoc.render.doctor import WORTH_NAMING, cards_of, headline, marked, sureness
from gpudoc.render.frame import Say, in_own_language
from gpudoc.render.gpus import gpu_facts, gpu_table, holder_table
from gpudoc.render.page import Badge, Block, Fold, Note, Number, Section, whole_page
from gpudoc.render.ranks import job_section
from gpudoc.render.table import Table
from gpudoc.units import format_count

KINDS = {"broken": "broken", "warning": "warning", "healthy": "good", "unknown": "warning"}
# how many further findings are shown in full
_MOST = 3
_NOTHING = {"file": "No error recognised", "fleet": "The machines do not differ"}


def render_page(report: Report) -> str:
    """The report as a self-contained HTML page."""
    report, say = in_own_language(report)
    sections = [
        *((job_section(report.job),) if report.job is not None else ()),
        Section(say(found_heading(report)), tuple(_findings(report, say))),
        Section("GPUs", tuple(t for t in (gpu_table(report.machine), holder_table(report.machine)) if t is not None)),
        Section("Checks", tuple(_checks(report))),
        Section("Facts", tuple(_facts(report))),
    ]
    return whole_page(
        "gpudoc doctor",
        [section for section in sections if section.blocks],
        lead=headline(report, say),
        badge=Badge(KINDS[report.verdict], say(report.verdict), report.language),
        numbers=_numbers(report),
    )


def found_heading(report: Report) -> str:
    """The heading of the findings."""
    return "The cause" if report.verdict in ("broken", "warning") else "Findings"


def note_of(finding: Finding, said: Sequence[str] = (), say: Say = str.format, *, is_open: bool = False) -> Note:
    """A finding as a box: its steps, and its evidence, folded unless `is_open`; `said` are further remarks."""
    evidence = tuple((o.fact.replace("_", " "), o.value, o.origin) for o in finding.evidence)
    known = Table(headings=(say("fact"), say("value"), say("read in")), rows=evidence)
    return Note(
        kind=finding.severity,
        title=f"{finding.title}{cards_of(finding)}",
        tag=f"{finding.id} · {sureness(finding, say)}",
        text=finding.why,
        steps=tuple(_step(remedy, say) for remedy in finding.fix),
        points=(*(say("This explains: {}", title) for title in finding.explains), *said),
        more=(Fold(say("How it is known"), (known,), format_count(len(evidence), "observation"), is_open),)
        if evidence
        else (),
    )


def _step(remedy: Remedy, say: Say) -> tuple[str, str]:
    step = marked(remedy, say)
    # the mark is copied with the command
    return say(
        "{} (needs root)", step
    ) if remedy.needs_root else step, f"# disruptive\n{remedy.run}" if remedy.disruptive and remedy.run else remedy.run


def _findings(report: Report, say: Say) -> Iterator[Block]:
    asked = any(o.fact == "question" for o in report.understood)
    if report.unexplained or report.deciding_facts:
        seen = tuple(f"{o.value} ({o.origin})" for o in report.unexplained)
        collect = tuple(say("Collect next: {}", fact) for fact in report.deciding_facts)
        yield Note(kind="warning", title=say("The cause is not known"), points=(*seen, *collect))
    if report.findings:
        # the figures of a text's cause are in its observations
        yield note_of(report.findings[0], say=say, is_open=report.source == "file")
    elif report.verdict != "unknown":
        title = "A question, and nothing wrong" if asked else _NOTHING.get(report.source, "No problem found")
        steps = tuple(_step(answer, say) for answer in report.answers)
        yield Note(kind="good", title=say(title), steps=steps, points=tuple(o.value for o in report.understood))
    elif not (report.unexplained or report.deciding_facts):
        yield Note(kind="warning", title=say("The cause is not known"))
    likely = [note_of(finding, say=say) for finding in report.findings[1:] if finding.confidence >= WORTH_NAMING]
    others = [note_of(finding, say=say) for finding in report.findings[1:] if finding.confidence < WORTH_NAMING]
    yield from likely[:_MOST]
    for title, rest in (("Further findings", likely[_MOST:]), ("Much less likely", others)):
        if rest:
            yield Fold(say(title), tuple(rest), str(len(rest)))


def _numbers(report: Report) -> list[Number]:
    counts = {kind: sum(f.severity == kind for f in report.findings) for kind in ("broken", "warning")}
    problems = str(sum(counts.values()))
    found = Number(
        "problems found", problems, remark=f"{counts['broken']} broken, {format_count(counts['warning'], 'warning')}"
    )
    if report.source == "fleet":
        return [Number("machines", str(len(report.recognised))), found]
    numbers = [found]
    if report.passed or report.skipped:
        numbers += [Number("checks passed", str(len(report.passed))), Number("not checked", str(len(report.skipped)))]
    gpus = report.machine.shown_gpus
    return [*numbers, Number("GPUs", str(len(gpus)))] if gpus else numbers


def _checks(report: Report) -> Iterator[Block]:
    """A folded part for each area: the causes ruled out, in sentences, and those not checked, by reason."""
    for area in AREAS:
        passed = [name for name in report.passed if area_of(name) == area]
        reasons: dict[str, list[str]] = {}
        for skipped in report.skipped:
            if area_of(skipped.id) == area:
                reasons.setdefault(f"Not checked, because {skipped.because}", []).append(skipped.id)
        for crashed in report.crashed:
            if area_of(crashed.id) == area:
                reasons.setdefault(f"This check itself failed: {crashed.error}", []).append(crashed.id)
        blocks: list[Block] = [_list("good", "Ruled out", passed)] if passed else []
        blocks += [_list("info", reason, names) for reason, names in reasons.items()]
        if blocks:
            missing = sum(map(len, reasons.values()))
            counts = [f"{len(passed)} passed"] * bool(passed) + [f"{missing} not checked"] * bool(missing)
            yield Fold(area[0].upper() + area[1:], tuple(blocks), ", ".join(counts))


def _list(kind: str, title: str, ids: Sequence[str]) -> Note:
    return Note(kind=kind, title=title, points=tuple(_sentence(name) for name in ids))


def _sentence(cause_id: str) -> str:
    cause = CATALOGUE.get(cause_id)
    return f"{cause.title} ({cause_id})" if cause is not None else cause_id


def _facts(report: Report) -> Iterator[Block]:
    facts = gpu_facts(report.machine)
    if facts:
        rows = tuple((name, value) for name, _, value in (fact.partition(": ") for fact in facts))
        yield Fold(
            "What is known of the GPUs",
            (Table(headings=("fact", "value"), rows=rows),),
            format_count(len(rows), "fact"),
        )
