"""Doctor's output for profiler traces: where a step's time goes, the first thing to change, and a comparison of two."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.control_characters import to_json
from gpudoc.doctor import document
from gpudoc.doctor.live.say import percent
from gpudoc.doctor.model import Finding, Report
from gpudoc.facts.readers.timeline import StepPart, Timeline
from gpudoc.facts.redact import private, whole
from gpudoc.frozen import dataclass
from gpudoc.render import console, frame
from gpudoc.render.doctor import marked
from gpudoc.render.doctor_output import Output, render_markdown, shareable
from gpudoc.render.doctor_page import render_page
from gpudoc.render.frame import MARK, WIDE, Form, box, fold
from gpudoc.render.page import save_page
from gpudoc.units import format_count
from gpudoc.writing import write_whole

# a part below this share of a step is not worth a line
_WORTH_A_LINE = 0.005
_WORTH_COMPARING_MS = 0.01
# a wait that no finding names is reported from this share of a step on
_WORTH_SAYING = 0.10
_WIDE_FORM = Form(WIDE)
_QUEUED = (
    "? There was work in the GPU's queue while the GPU was idle: another stream, an event or another rank held it "
    "back. Compare the traces of all ranks at that point."
)
_UNSTEADY = (
    "? This trace marks fewer than two steps, so it may show only the start-up. For a reliable answer record three "
    "or more steps after a warm-up: torch.profiler.schedule(wait=1, warmup=1, active=3), and call step() once per "
    "step."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport:
    """The judgement of one trace, with an earlier one if two are compared."""

    report: Report
    timeline: Timeline
    before: Timeline | None = None


def show(judged: TraceReport, output: Output) -> None:
    """Print and write the report; GpudocError if a file cannot be written."""
    report = shareable(judged.report, redact=output.redact)
    found = {**document.dump(report), "trace": _plain(judged.timeline)}
    if judged.before is not None:
        found["before"] = _plain(judged.before)
    plain = private(found) if output.redact else whole(found)
    if output.html is not None:
        save_page(output.html, render_page(report))
    if output.out is not None:
        markdown = output.out.suffix.lower() in (".md", ".markdown")
        text = render_markdown(report) if markdown else to_json(plain) + "\n"
        write_whole(output.out, text, hint="name a file in an existing folder")
    if output.json:
        console.print_json(plain)
    elif output.markdown:
        console.stdout(plain=True).print(render_markdown(report), end="", soft_wrap=True)
    else:
        shape = frame.form(output.plain, piped=WIDE)
        frame.show(render(judged, verbose=output.verbose, shape=shape), plain=output.plain)


def render(judged: TraceReport, *, verbose: bool = False, shape: Form = _WIDE_FORM) -> str:
    """The first screen of a trace as text; every finding if `verbose`."""
    timeline, report = judged.timeline, judged.report
    lines = [*_headline(timeline, shape.width), *_parts(timeline, shape.width)]
    if judged.before is not None:
        lines += _comparison(judged.before, timeline)
    worst = [one for one in report.findings if one.severity != "info" or not timeline.is_steady]
    worst = [one for one in worst if one.id != "compute_bound"]
    if timeline.share(StepPart.QUEUE) >= _WORTH_SAYING:
        lines += fold(_QUEUED, shape.width)
    if not timeline.is_steady:
        lines += fold(_UNSTEADY, shape.width)
    elif not worst:
        lines += fold(_healthy(timeline), shape.width)
    for one in worst if verbose else worst[:1]:
        lines += box(_finding(one, shape.inner), shape)
    if not verbose and len(worst) > 1:
        lines += fold("also: " + "; ".join(one.title for one in worst[1:4]), shape.width)
    return "\n".join(lines) + "\n"


def _headline(timeline: Timeline, width: int) -> list[str]:
    trace = timeline.trace
    device = "no GPU in the trace" if timeline.device is None else f"GPU {timeline.device}"
    steps = format_count(timeline.num_steps, "step") if timeline.steps_are_marked else "steps are not marked"
    rank = [] if trace.rank is None else [f"rank {trace.rank}"]
    cut = ["the file ends in the middle"] if trace.is_cut else []
    said = [f"{trace.tool} trace", *rank, steps, f"{timeline.step_ms:.1f} ms a step", device, *cut]
    return fold(" · ".join(said), width)


def _parts(timeline: Timeline, width: int) -> list[str]:
    """One line for each part of a step: first the device's work, then its waits."""
    shown = [part for part in StepPart if timeline.share(part) >= _WORTH_A_LINE]
    lines = [f"  {part.value:34} {timeline.parts[part]:9.1f} ms {percent(timeline.share(part)):>6}" for part in shown]
    if timeline.hidden_ms >= _WORTH_COMPARING_MS:
        lines.append(f"  computing overlaps {timeline.hidden_ms:.1f} ms of communication and copies")
    return lines if all(len(one) <= width for one in lines) else [part for one in lines for part in fold(one, width)]


def _comparison(before: Timeline, after: Timeline) -> list[str]:
    """The changes between two traces, in milliseconds a step."""
    slow, fast = max(before.step_ms, after.step_ms), min(before.step_ms, after.step_ms)
    how = "as fast" if after.step_ms <= before.step_ms else "as long"
    ratio = f", {slow / fast:.2f} times {how}" if fast else ""
    lines = [f"compared with {before.trace.origin}: {before.step_ms:.1f} → {after.step_ms:.1f} ms a step{ratio}"]
    changes = {part: after.parts.get(part, 0.0) - before.parts.get(part, 0.0) for part in StepPart}
    for part in sorted(changes, key=lambda one: -abs(changes[one])):
        if abs(changes[part]) >= max(_WORTH_COMPARING_MS, _WORTH_A_LINE * before.step_ms):
            lines.append(f"  {part.value:34} {changes[part]:+9.1f} ms")
    return lines


def _healthy(timeline: Timeline) -> str:
    if timeline.device is None:
        return (
            f"No part of a step stands out: {percent(timeline.share(StepPart.COMPUTE))} of it is computing on the CPU."
        )
    return f"Healthy: the GPU works {percent(timeline.busy)} of the time, and no wait stands out."


def _finding(finding: Finding, width: int) -> list[str]:
    lines = fold(f"{MARK[finding.severity]} {finding.title}  [{finding.id}, {percent(finding.confidence)} sure]", width)
    for seen in finding.evidence:
        lines += fold(f"  seen: {seen.fact}: {seen.value}", width, indent="        ")
    for remedy in finding.fix[:2]:
        lines += fold(f"  fix: {marked(remedy)}", width, indent="       ")
        lines += [f"    $ {part}" for part in remedy.run.splitlines()]
    return lines


def _plain(timeline: Timeline) -> dict[str, object]:
    trace = timeline.trace
    return {
        "origin": trace.origin,
        "tool": trace.tool,
        "rank": trace.rank,
        "is_cut": trace.is_cut,
        "device": timeline.device,
        "num_steps": timeline.num_steps if timeline.steps_are_marked else None,
        "step_ms": round(timeline.step_ms, 4),
        "parts_ms": {part.name.lower(): round(ms, 4) for part, ms in timeline.parts.items()},
        "hidden_ms": round(timeline.hidden_ms, 4),
        "places": {part.name.lower(): _places(places) for part, places in timeline.places.items()},
    }


def _places(places: Sequence[tuple[str, float]]) -> list[dict[str, object]]:
    return [{"at": place, "ms": round(ms, 4)} for place, ms in places]
