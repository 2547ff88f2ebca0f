"""Doctor's output for a running job: where the time goes, the cause, the fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpudoc import control_characters
from gpudoc.doctor.live.facts import dump
from gpudoc.doctor.live.phases import COMPUTE
from gpudoc.doctor.live.say import GAIN, percent
from gpudoc.doctor.live.shares import JobShares, RankShares, summarise
from gpudoc.doctor.model import Finding, Observation, Report
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Stacks, Watch
from gpudoc.render.doctor import marked
from gpudoc.render.frame import MARK, WIDE, Form, box, fold, join_lines
from gpudoc.units import format_count
from gpudoc.writing import write_whole


def render(report: Report, watch: Watch, *, verbose: bool = False, width: int = WIDE, boxed: bool = False) -> str:
    """The first screen of a watched job as text, with the root cause in a box if `boxed`; everything if `verbose`."""
    shape = Form(width, boxed and not verbose)
    job = summarise(watch)
    lines = [*_headline(watch, job, width), *_where_time_goes(watch, job, verbose, width)]
    shown = report.findings if verbose else report.findings[:1]
    if report.verdict == "unknown":
        seen = "; ".join(o.value for o in report.unexplained) or "the job is not training yet"
        lines += fold(f"? {seen[0].upper()}{seen[1:]}. Watch it again later or for longer.", width)
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
    return join_lines(lines)


def render_again(report: Report) -> str:
    """The root cause in a few lines, for the end of a job whose output has pushed the screen away."""
    first = report.findings[0] if report.findings else None
    if first is None:
        return ""
    lines = [f"{MARK[first.severity]} {first.title}  [{first.id}, {percent(first.confidence)} sure]"]
    for remedy in first.fix[:1]:
        lines += fold(f"  fix: {marked(remedy)}", WIDE, indent="       ")
        lines += [f"    $ {part}" for part in remedy.run.splitlines()]
    return join_lines(["What gpudoc found while the job was running:", *lines])


def render_nothing(report: Report) -> str:
    """The one line about a command that left nothing to watch and nothing to read."""
    seen = report.unexplained[0].value if report.unexplained else "it ended"
    return f"? Nothing to judge: the command {seen}\n"


def to_json(report: Mapping[str, object], watch: Watch | None, ended: Mapping[str, object] | None) -> dict[str, object]:
    """The document of the report, with the watch, and how a launched command ended."""
    extra: dict[str, object] = {}
    if watch is not None:
        extra["watch"] = dump(watch)
    if ended is not None:
        extra["command"] = dict(ended)
    return {**report, **extra}


def save_text(path: Path, text: str, document: Mapping[str, object]) -> None:
    """Write the screen, or the document if the file's name ends in .json; GpudocError if it cannot be written."""
    if path.suffix.lower() == ".json":
        text = control_characters.to_json(document) + "\n"
    write_whole(path, text, hint="name a file in an existing folder")


def _headline(watch: Watch, job: JobShares, width: int) -> list[str]:
    ranks = max(1, len(job.ranks))
    parts = [f"process {watch.pid}", f"watched {watch.seconds:.0f} s"]
    if watch.interrupted or watch.ended:
        parts[-1] += " (until it was interrupted)" if watch.interrupted else " (until it ended)"
    parts.append(format_count(ranks, "rank"))
    number = round(job.num_workers)
    parts.append(format_count(number, "loader worker") if number else "no loader workers")
    lacking = job.cpu_demand > max(1.3 * job.cpu_used, job.cpu_used + 0.3)
    wanted = f" where it needs {job.cpu_demand:.1f}" if lacking else ""
    parts.append(f"{job.cpu_used:.1f} of {job.cpus:g} CPUs used{wanted}")
    gpus = watch.gpus
    parts.append("no GPU" if isinstance(gpus, Absent) else format_count(len(gpus), "GPU"))
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
            lines += fold(f"  {rank_name(rank, job)}: {_phases(rank)}", width, indent="    ")
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
    # the fix comes before its evidence
    for remedy in finding.fix if verbose else finding.fix[:2]:
        lines += fold(f"  fix: {remedy.say}", width, indent="       ")
        if remedy.run:
            lines += [f"    $ {part}" for part in remedy.run.splitlines()]
    if gain:
        lines.append(f"  gain: about {gain} as fast (estimate)")
    for o in seen if verbose else _few(seen):
        lines.append(_cut(f"  {o.fact.replace('_', ' ')}: {o.value}{f'  ({o.origin})' if verbose else ''}", width))
    return lines


def _few(seen: Sequence[Observation]) -> list[Observation]:
    """The observations for the first screen: no more than two of a kind."""
    kept = [o for place, o in enumerate(seen) if sum(before.fact == o.fact for before in seen[:place]) < 2]
    return kept[:5]


def rank_name(rank: RankShares, job: JobShares) -> str:
    """The name of a training process: its rank if there are several ranks."""
    return f"rank {rank.rank}" if rank.rank is not None and len(job.ranks) > 1 else f"process {rank.pid}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
