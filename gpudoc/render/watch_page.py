"""A watched job as a page: the verdict, where the time went, every rank's phases over time, the loader's workers."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpudoc.doctor.live.phases import COMPUTE, DATA, Phase
from gpudoc.doctor.live.say import GAIN
from gpudoc.doctor.live.shares import JobShares, RankShares, summarise
from gpudoc.doctor.model import Finding, Report
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Watch
from gpudoc.render.chart import Part, nice_step, share_bar
from gpudoc.render.doctor_page import KINDS, note_of
from gpudoc.render.page import Badge, Block, Figure, Fold, Note, Number, Section, save_page, whole_page
from gpudoc.render.table import Table
from gpudoc.render.watch import rank_name
from gpudoc.units import format_count, format_seconds

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


def save(path: Path, report: Report, watch: Watch) -> None:
    """Write the page; GpudocError if it cannot be written."""
    save_page(path, render_page(report, watch))


def render_page(report: Report, watch: Watch) -> str:
    """The verdict with a timeline of every rank, as one self-contained page."""
    job = summarise(watch)
    notes = [_note(finding) for finding in report.findings]
    sections = [
        Section(
            "The cause" if report.verdict in ("broken", "warning") else "Findings",
            (*notes[:1], *_unsaid(report, watch), *notes[1:]),
        ),
        Section("Where the time went", tuple(_times(job))),
        Section("What the main threads did", tuple(_timelines(job, watch.seconds))),
        Section("Loader workers", (_worker_table(job),) if job.workers else ()),
    ]
    return whole_page(
        "gpudoc doctor",
        [section for section in sections if section.blocks],
        lead=_lead(watch),
        badge=Badge(KINDS[report.verdict], report.verdict),
        numbers=list(_numbers(report, job)),
    )


def _note(finding: Finding) -> Note:
    gain = _gain(finding)
    return note_of(finding, (f"Estimated gain: {gain}",) if gain else ())


def _gain(finding: Finding) -> str:
    return next((seen.value for seen in finding.evidence if seen.fact == GAIN), "")


def _unsaid(report: Report, watch: Watch) -> Iterator[Note]:
    if report.verdict == "unknown":
        seen = tuple(o.value for o in report.unexplained) or ("The job is not training yet.",)
        again = f"gpudoc doctor --pid {watch.pid} --seconds 60"
        yield Note(kind="warning", title="Nothing is known yet; watch it for longer", points=seen, commands=(again,))
    elif not report.findings:
        yield Note(kind="good", title="No bottleneck found")
    if isinstance(watch.stacks, Absent):
        yield Note(kind="warning", title="Less certain: no stacks were seen", text=watch.stacks.reason)


def _lead(watch: Watch) -> str:
    ended = ", until it was interrupted" if watch.interrupted else ", until it ended" if watch.ended else ""
    gpus = "no GPU" if isinstance(watch.gpus, Absent) else format_count(len(watch.gpus), "GPU")
    return f"Process {watch.pid} · watched for {format_seconds(watch.seconds)}{ended} · {gpus}"


def _numbers(report: Report, job: JobShares) -> Iterator[Number]:
    if job.lead is not None:
        yield Number("computing", f"{job.lead.share(*COMPUTE):.0%}", remark="of the main thread's time")
        yield Number("waiting for data", f"{job.lead.share(*DATA):.0%}", remark="including loading in the main process")
    lacking = job.cpu_demand > max(1.3 * job.cpu_used, job.cpu_used + 0.3)
    wanted = f"where {job.cpu_demand:.1f} were wanted" if lacking else ""
    yield Number("CPUs used", f"{job.cpu_used:.1f}", f"of {job.cpus:g}", wanted)
    if len(job.ranks) > 1:
        yield Number("ranks", str(len(job.ranks)))
    yield Number("loader workers", str(round(job.num_workers)))
    gain = _gain(report.findings[0]) if report.findings else ""
    if gain:
        yield Number("the fix gains", gain, remark="as fast as now, estimated")


def _times(job: JobShares) -> Iterator[Block]:
    if job.lead is not None:
        shares = sorted(job.lead.phases.items(), key=lambda pair: -pair[1])
        parts = [Part(phase.value, share, _colour(phase)) for phase, share in shares if share >= 0.005]
        yield Figure(share_bar(parts), f"The main thread of {rank_name(job.lead, job)}.")
    if len(job.ranks) > 1:
        yield Fold("Every rank", (_share_table(job),), f"{len(job.ranks)} ranks")


def _timelines(job: JobShares, seconds: float) -> Iterator[Figure]:
    for rank in job.ranks:
        yield Figure(_timeline(rank, seconds), rank_name(rank, job))


def _timeline(rank: RankShares, seconds: float) -> str:
    """One bar over the time: runs of equal phases as rectangles, with the phase and its time as the tooltip."""
    count = max(1, len(rank.timeline))
    parts = []
    begin = 0
    for place in range(1, count + 1):
        if place < count and rank.timeline[place] is rank.timeline[begin]:
            continue
        phase = rank.timeline[begin]
        told = f"{phase.value}, {(place - begin) / count * seconds:.2f} s"
        parts.append(
            f'<rect x="{1000 * begin / count:.2f}" y="0" width="{1000 * (place - begin) / count:.2f}" height="30" '
            f'fill="{_colour(phase)}"><title>{html.escape(told)}</title></rect>'
        )
        begin = place
    # the words are outside the drawing, which is stretched to the width of the page
    times = "".join(_tick(place, seconds) for place in _ticks(seconds))
    return (
        f'<svg viewBox="0 0 1000 30" preserveAspectRatio="none" style="height:2rem" role="img" aria-label="timeline">'
        f'{"".join(parts)}</svg><div class="times">{times}</div>{_key(rank)}'
    )


def _ticks(seconds: float) -> list[float]:
    """Round times from zero on, five or six of them."""
    step = nice_step(seconds / 5)
    return [index * step for index in range(int(seconds / step + 1e-9) + 1)]


def _tick(at: float, seconds: float) -> str:
    end = ' class="end"' if at > 0.95 * seconds else ""
    return f'<span{end} style="left:{100 * at / seconds:.1f}%">{at:g} s</span>'


def _key(rank: RankShares) -> str:
    seen = dict.fromkeys(phase for phase in Phase if phase in rank.timeline)
    rows = (f'<li><i style="background:{_colour(phase)}"></i>{html.escape(phase.value)}</li>' for phase in seen)
    return f'<ul class="key">{"".join(rows)}</ul>'


def _colour(phase: Phase) -> str:
    return _COLOURS.get(phase, _OTHER_COLOUR)


def _share_table(job: JobShares) -> Table:
    phases = [p for p in Phase if any(r.phases.get(p, 0) >= 0.005 for r in job.ranks)]
    rows = tuple((rank_name(r, job), *(f"{r.phases.get(p, 0):.0%}" for p in phases), f"{r.cpu:.0%}") for r in job.ranks)
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
    return Table(headings=headings, rows=rows, numeric=frozenset(headings[1:5]), shares=frozenset({"busy"}))
