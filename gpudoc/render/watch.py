"""What doctor says of a running job: where the time goes, the cause, the fix; a page with a timeline."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpudoc.doctor.live.facts import dump
from gpudoc.doctor.live.phases import COMPUTE, DATA, Phase
from gpudoc.doctor.live.say import GAIN, percent
from gpudoc.doctor.live.shares import JobShares, RankShares, summarise
from gpudoc.doctor.model import Finding, Observation, Report
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Stacks, Watch
from gpudoc.render.frame import MARK, WIDE, Form, box, fold
from gpudoc.render.page import Figure, Note, Section, Table, page, save_page
from gpudoc.writing import write_whole

_COLOURS: Mapping[Phase, str] = {
    **dict.fromkeys(DATA, "#d9822b"),
    Phase.DATA_RECEIVE: "#e8b27a",
    Phase.WORKER_START: "#a65e1a",
    Phase.FORWARD: "#4c9f70",
    Phase.BACKWARD: "#2f7d4f",
    Phase.OPTIMIZER: "#7fbf9a",
    Phase.TRANSFER: "#7e6bc4",
    Phase.SYNC: "#c0504d",
    Phase.COLLECTIVE: "#3b78b5",
    Phase.CHECKPOINT: "#8c564b",
    Phase.LOGGING: "#bcbd22",
    Phase.COMPILE: "#17a2b8",
    Phase.PYTHON: "#d6457b",
    Phase.SLEEP: "#e377c2",
}
_OTHER_COLOUR = "#9a9a9a"


def render(report: Report, watch: Watch, *, verbose: bool = False, width: int = WIDE, boxed: bool = False) -> str:
    """The first screen of a watched job as text, the root cause in a box where asked; everything when `verbose`."""
    shape = Form(width, boxed and not verbose)
    job = summarise(watch)
    lines = [*_headline(watch, job, width), *_where_time_goes(watch, job, verbose, width)]
    shown = report.findings if verbose else report.findings[:1]
    if report.verdict == "unknown":
        seen = "; ".join(o.value for o in report.unexplained) or "it does not train yet"
        lines += fold(f"? {seen[0].upper()}{seen[1:]}. Watch it again later, or for longer.", width)
        lines.append(f"    $ gpudoc doctor --pid {watch.pid} --seconds 60")
    if report.verdict == "healthy" and not any(f.id == "compute_bound" for f in report.findings):
        lines += fold(_no_finding(watch, job), width)
    for finding in shown:
        lines += box(_finding(finding, verbose, shape.inner), shape)
    if not verbose and len(report.findings) > 1:
        also = ", ".join(f"{f.id} ({percent(f.confidence)})" for f in report.findings[1:4])
        lines += fold(f"also: {also}", width)
    if isinstance(watch.stacks, Absent):
        lines += fold(f"less certain: no stacks: {watch.stacks.reason}", width)
    if verbose:
        lines += ["", f"verdict: {report.verdict}", f"passed ({len(report.passed)}): {', '.join(report.passed)}"]
        lines += [f"not checked: {s.id}: {s.because}" for s in report.skipped]
        lines += [f"crashed: {c.id}: {c.error}" for c in report.crashed]
    return "\n".join(lines) + "\n"


def render_again(report: Report) -> str:
    """The root cause in a few lines, for the end of a job whose output has pushed the screen away."""
    first = report.findings[0] if report.findings else None
    if first is None:
        return ""
    lines = [f"{MARK[first.severity]} {first.title}  [{first.id}, {percent(first.confidence)} sure]"]
    for remedy in first.fix[:1]:
        lines += fold(f"  fix: {remedy.marked}", WIDE, indent="       ")
        lines += [f"    $ {part}" for part in remedy.run.splitlines()]
    return "\n".join(["What gpudoc found while the job ran:", *lines]) + "\n"


def render_nothing(report: Report) -> str:
    """The one line about a command of which there was nothing to watch and nothing to read."""
    seen = report.unexplained[0].value if report.unexplained else "it ended"
    return f"? Nothing to judge: the command {seen}\n"


def to_json(report: Mapping[str, object], watch: Watch | None, ended: Mapping[str, object] | None) -> dict[str, object]:
    """The document of the report, with what was watched, and how a launched command ended."""
    extra: dict[str, object] = {}
    if watch is not None:
        extra["watch"] = dump(watch)
    if ended is not None:
        extra["command"] = dict(ended)
    return {**report, **extra}


def save_text(path: Path, text: str, document: Mapping[str, object]) -> None:
    """Write the screen, or the document when the file's name ends in .json; GpudocError when it cannot be written."""
    if path.suffix.lower() == ".json":
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    write_whole(path, text, hint="name a file in a folder that exists")


def save(path: Path, report: Report, watch: Watch) -> None:
    """Write the page; GpudocError when it cannot be written."""
    save_page(path, render_page(report, watch))


def render_page(report: Report, watch: Watch) -> str:
    """The verdict with a timeline of every rank, as one self-contained page."""
    job = summarise(watch)
    notes = tuple(_note(f) for f in report.findings) or (Note(kind="good", title="No bottleneck found"),)
    sections = [Section("Verdict", notes)]
    if job.ranks:
        figures = tuple(Figure(_timeline(rank, watch.seconds), _name(rank, job)) for rank in job.ranks)
        sections.append(Section("What the main threads did", (Figure(_legend(job.ranks)), *figures)))
        sections.append(Section("Shares of the time", (_share_table(job),)))
    if job.workers:
        sections.append(Section("Loader workers", (_worker_table(job),)))
    evidence = tuple((f.id, o.fact, o.value, o.origin) for f in report.findings for o in f.evidence)
    if evidence:
        table = Table(headings=("cause", "fact", "value", "read in"), rows=evidence)
        sections.append(Section("Evidence", (table,)))
    return page(f"gpudoc doctor: {report.verdict}", sections, lead=" ".join(_headline(watch, job, 1000)))


def _headline(watch: Watch, job: JobShares, width: int) -> list[str]:
    ranks = max(1, len(job.ranks))
    parts = [f"process {watch.pid}", f"watched {watch.seconds:.0f} s"]
    if watch.interrupted or watch.ended:
        parts[-1] += " (until it was interrupted)" if watch.interrupted else " (until it ended)"
    parts.append(f"{ranks} rank{'s' if ranks > 1 else ''}")
    number = round(job.num_workers)
    parts.append(f"{number} loader worker{'s' if number != 1 else ''}" if number else "no loader workers")
    lacking = job.cpu_demand > max(1.3 * job.cpu_used, job.cpu_used + 0.3)
    wanted = f" where it wants {job.cpu_demand:.1f}" if lacking else ""
    parts.append(f"{job.cpu_used:.1f} of {job.cpus:g} CPUs used{wanted}")
    gpus = watch.gpus
    parts.append("no GPU" if isinstance(gpus, Absent) else f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''}")
    return fold(" · ".join(part.replace(" ", "\u00a0") for part in parts), width)


def _where_time_goes(watch: Watch, job: JobShares, verbose: bool, width: int) -> list[str]:
    lead = job.lead
    if lead is None:
        return []
    lines = fold(f"  main thread: {_phases(lead)}", width, indent="    ")
    if job.workers:
        busy = ", ".join(percent(w.busy) for w in job.workers[:8])
        lines += fold(f"  workers busy: {busy}", width, indent="    ")
    if verbose:
        for rank in job.ranks[1:]:
            lines += fold(f"  {_name(rank, job)}: {_phases(rank)}", width, indent="    ")
    if isinstance(watch.stacks, Stacks) and lead.startup_samples:
        lines.append(f"  (without {lead.startup_samples / watch.stacks.rate_hz:.1f} s of start-up)")
    return lines


def _phases(rank: RankShares) -> str:
    ordered = sorted(rank.phases.items(), key=lambda pair: -pair[1])
    return " · ".join(f"{phase.value} {percent(share)}" for phase, share in ordered if share >= 0.015)


def _no_finding(watch: Watch, job: JobShares) -> str:
    if job.lead is None:
        reason = watch.stacks.reason if isinstance(watch.stacks, Absent) else "no training process was seen"
        return f"No verdict on the training loop: {reason}"
    computing = job.lead.share(*COMPUTE)
    return f"No bottleneck found: computing takes {percent(computing)} of the time, and nothing else stands out."


def _finding(finding: Finding, verbose: bool, width: int) -> list[str]:
    gain = next((o.value for o in finding.evidence if o.fact == GAIN), "")
    seen = [o for o in finding.evidence if o.fact != GAIN]
    lines = [""] if verbose else []
    lines += fold(
        f"{MARK[finding.severity]} {finding.title}  [{finding.id}, {percent(finding.confidence)} sure]", width
    )
    if verbose and finding.why:
        lines += fold(f"  why: {finding.why}", width, indent="       ")
    # what to do stands before what it rests on
    for remedy in finding.fix if verbose else finding.fix[:2]:
        lines += fold(f"  fix: {remedy.say}", width, indent="       ")
        if remedy.run:
            lines.append(f"    $ {remedy.run}")
    if gain:
        lines.append(f"  gain: about {gain} as fast (estimate)")
    for o in seen if verbose else _few(seen):
        lines.append(_cut(f"  {o.fact.replace('_', ' ')}: {o.value}{f'  ({o.origin})' if verbose else ''}", width))
    return lines


def _few(seen: Sequence[Observation]) -> list[Observation]:
    """What fits the first screen: no more than two of a kind."""
    kept = [o for place, o in enumerate(seen) if sum(before.fact == o.fact for before in seen[:place]) < 2]
    return kept[:5]


def _note(finding: Finding) -> Note:
    gain = next((o.value for o in finding.evidence if o.fact == GAIN), "")
    return Note(
        kind=finding.severity,
        title=f"{finding.title} ({finding.id}, {finding.confidence:.0%} sure)",
        text=finding.why,
        points=(*(r.say for r in finding.fix), *((f"Estimated gain: {gain}",) if gain else ())),
        commands=tuple(r.run for r in finding.fix if r.run),
    )


def _name(rank: RankShares, job: JobShares) -> str:
    return f"rank {rank.rank}" if rank.rank is not None and len(job.ranks) > 1 else f"process {rank.pid}"


def _timeline(rank: RankShares, seconds: float) -> str:
    """One bar over the time: runs of equal phases as rectangles, with the phase and its time as the tooltip."""
    width, height = 720.0, 46.0
    count = max(1, len(rank.timeline))
    parts = []
    begin = 0
    for place in range(1, count + 1):
        if place < count and rank.timeline[place] is rank.timeline[begin]:
            continue
        phase = rank.timeline[begin]
        x, w = width * begin / count, width * (place - begin) / count
        told = f"{phase.value}, {(place - begin) / count * seconds:.2f} s"
        colour = _COLOURS.get(phase, _OTHER_COLOUR)
        parts.append(
            f'<rect x="{x:.1f}" y="0" width="{w:.2f}" height="28" fill="{colour}">'
            f"<title>{html.escape(told)}</title></rect>"
        )
        begin = place
    ticks = "".join(
        f'<text x="{width * i / 4:.0f}" y="42" font-size="11" fill="currentColor" '
        f'text-anchor="{("start", "middle", "middle", "middle", "end")[i]}">{seconds * i / 4:.0f} s</text>'
        for i in range(5)
    )
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="100%" role="img" aria-label="timeline">'
        f"{''.join(parts)}{ticks}</svg>"
    )


def _legend(ranks: Sequence[RankShares]) -> str:
    seen = [p for p in Phase if any(r.phases.get(p, 0) > 0 for r in ranks)]
    rows = []
    for place, phase in enumerate(seen):
        x, y = place % 3 * 240, place // 3 * 20
        rows.append(
            f'<rect x="{x}" y="{y}" width="12" height="12" fill="{_COLOURS.get(phase, _OTHER_COLOUR)}"/>'
            f'<text x="{x + 18}" y="{y + 11}" font-size="12" fill="currentColor">{html.escape(phase.value)}</text>'
        )
    height = (len(seen) + 2) // 3 * 20
    return f'<svg viewBox="0 0 720 {height}" width="100%" role="img" aria-label="legend">{"".join(rows)}</svg>'


def _share_table(job: JobShares) -> Table:
    phases = [p for p in Phase if any(r.phases.get(p, 0) >= 0.005 for r in job.ranks)]
    rows = tuple((_name(r, job), *(f"{r.phases.get(p, 0):.0%}" for p in phases), f"{r.cpu:.0%}") for r in job.ranks)
    headings = ("process", *(p.value for p in phases), "CPU of the main thread")
    return Table(headings=headings, rows=rows, numeric=frozenset(headings[1:]))


def _worker_table(job: JobShares) -> Table:
    headings = ("process", "busy", "CPU", "waits for a CPU", "waits for storage", "most time at")
    rows = tuple(
        (
            str(w.pid), f"{w.busy:.0%}", f"{w.cpu:.0%}", f"{w.queued:.0%}", f"{w.storage:.0%}",
            f"{Path(w.sites[0].frame.file).name}:{w.sites[0].frame.line}" if w.sites else "",
        )
        for w in job.workers
    )  # fmt: skip
    return Table(headings=headings, rows=rows, numeric=frozenset(headings[1:5]))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
