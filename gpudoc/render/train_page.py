"""A run as one page: result, curves, where the time went, every setting with its source."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import gpudoc
from gpudoc.render import train_memory
from gpudoc.render.chart import Axis, Part, Series, line_chart, share_bar
from gpudoc.render.page import Badge, Block, Figure, Fold, Note, Number, Section, page, save_page
from gpudoc.render.table import Table
from gpudoc.train.document import RunSummary
from gpudoc.train.events import Finished
from gpudoc.units import format_bytes, format_count, format_figure, format_seconds

_MOST_POINTS = 240
# the title names the axis
_SPANNED = Axis(label="", from_zero=False)
_KINDS = {"finished": "good", "stopped": "warning", "failed": "broken"}


def train_page(finished: Finished, target: Path) -> None:
    """Write the page of a finished run to `target`; GpudocError if it cannot be written."""
    save_page(target, render_page(finished))


def render_page(finished: Finished) -> str:
    """The page as text; curves come from the run's metrics.jsonl."""
    found = finished.summary
    rows = read_metrics(Path(found["run_dir"]) / "metrics.jsonl")
    sections = [
        Section("Result", _result(found)),
        Section("Curves", _curves(rows)),
        Section("Where the time went", _times(found, rows)),
        Section("Where the memory went", train_memory.blocks(found)),
        Section("Behind the run", (_settings(found), _stages(found))),
    ]
    return page(
        f"Training of {found['name']}",
        sections,
        lead=f"{format_count(found['steps'], 'step')} on {found['device']}; {found['verdict']}.",
        foot=f"gpudoc {gpudoc.__version__}, {found['schema']}",
        badge=Badge(_KINDS.get(found["status"], "info"), found["status"]),
        numbers=list(_numbers(found)),
    )


def _numbers(found: RunSummary) -> Iterator[Number]:
    final = found.get("final_loss")
    if final is not None:
        yield Number("final training loss", f"{final:.4g}")
    evaluation = found.get("evaluation")
    if evaluation is not None:
        remark = f"after step {evaluation['step']}"
        loss = evaluation["loss"]
        told = "not finite" if loss is None else format_figure(loss, ".4g")
        yield Number("loss on the eval set", told, remark=remark)
    rate = found.get("samples_per_s")
    if rate is not None:
        yield Number("speed", f"{rate:,.4g}", "samples/s")
    took = format_seconds(sum(found["seconds"].values()))
    yield Number("steps", f"{found['steps']:,}", remark=f"in {took}")
    value, _, unit = format_bytes(found["memory_peak_bytes"]).partition(" ")
    yield Number("peak memory", value, unit)


def read_metrics(path: Path) -> list[dict[str, object]]:
    """The objects of a metrics.jsonl; a torn last line is left out, a missing file is an empty list."""
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            found.append(row)
    return found


def _result(found: RunSummary) -> tuple[Block, ...]:
    points = []
    evaluation = found.get("evaluation")
    if evaluation is not None:
        figures = {name: value for name, value in evaluation.items() if name not in ("loss", "step")}
        points += [f"{name.replace('_', ' ')}: {format_figure(value, '.4g')}" for name, value in figures.items()]
    for rescue in found.get("rescues") or ():
        what = rescue["rescue"]
        points.append(f"out of memory at step {rescue['step']}: micro batch {what['from_batch']} → {what['to_batch']}")
    status, reason = found["status"], found.get("reason")
    title = f"{status.capitalize()}{': ' + reason if reason else ''}"
    notes: list[Block] = [Note(kind=_KINDS.get(status, "info"), title=title, points=tuple(points))]
    for advice in found.get("advice") or ():
        commands = (advice["run"],) if advice["run"] else ()
        notes.append(Note(kind="info", title=f"{advice['say'][:1].upper()}{advice['say'][1:]}", commands=commands))
    return tuple(notes)


def _curves(rows: Sequence[Mapping[str, object]]) -> tuple[Block, ...]:
    steps = Axis(label="step")
    evaluations = [
        {"step": row["step"], **cast("Mapping[str, object]", row["eval"])}
        for row in rows
        if isinstance(row.get("eval"), Mapping)
    ]
    loss = [Series(name="training loss", points=_points(rows, "loss"), style="curve")]
    if evaluated := _points(evaluations, "loss"):
        loss.append(Series(name="eval loss", points=evaluated))
    drawn = [
        (line_chart("Loss", loss, steps, _SPANNED), "Means over the steps between two log points."),
        (_one("Throughput", rows, "samples_per_s", Axis(label="samples/s")), "Evaluation and checkpoints included."),
        (_one("Learning rate", rows, "lr", _SPANNED), ""),
        (_one("Gradient norm", rows, "grad_norm", _SPANNED), "For the logged step, before clipping."),
    ]
    return tuple(Figure(svg, caption) for svg, caption in drawn if svg) or ("No step was logged.",)


def _one(title: str, rows: Sequence[Mapping[str, object]], key: str, axis: Axis) -> str:
    series = [Series(name=title.lower(), points=_points(rows, key), style="curve")]
    return line_chart(title, series, Axis(label="step"), axis)


def _points(rows: Sequence[Mapping[str, object]], key: str) -> tuple[tuple[float, float], ...]:
    found = [
        (float(cast(int, row["step"])), float(cast(float, row[key])))
        for row in rows
        if isinstance(row.get(key), int | float)
    ]
    stride = -(-len(found) // _MOST_POINTS) or 1
    return tuple(found[::stride])


def _times(found: RunSummary, rows: Sequence[Mapping[str, object]]) -> tuple[Block, ...]:
    seconds, share = found["seconds"], found["share"]
    bar = share_bar([Part(phase.replace("_", " "), share[phase]) for phase in seconds])
    table = Table(
        headings=("phase", "time", "share"),
        rows=tuple(
            (phase.replace("_", " "), format_seconds(value), f"{share[phase]:.1%}")
            for phase, value in seconds.items()
            if value > 0
        ),
        numeric=frozenset({"time", "share"}),
    )
    series = []
    for phase in seconds:
        points = []
        for row in rows:
            split = row.get("seconds")
            if isinstance(split, Mapping) and sum(split.values()) > 0:
                # a row of an earlier version lacks the newer phases
                points.append((float(cast(int, row["step"])), 100 * split.get(phase, 0.0) / sum(split.values())))
        if any(value >= 1 for _, value in points):
            stride = -(-len(points) // _MOST_POINTS) or 1
            series.append(Series(name=phase.replace("_", " "), points=tuple(points[::stride]), style="curve"))
    chart = line_chart("Share of each phase in the run", series, Axis(label="step"), Axis(label="per cent"))
    blocks = (Figure(bar), Fold("In seconds", (table,)))
    return (*blocks, Figure(chart)) if chart else blocks


def _settings(found: RunSummary) -> Fold:
    rows = tuple((name, str(row["value"]), row["from"]) for name, row in found["settings"].items())
    return Fold("Settings", (Table(headings=("setting", "value", "from"), rows=rows),), "and where each came from")


def _stages(found: RunSummary) -> Fold:
    rows = []
    for stage in found["stages"]:
        memory = stage.get("memory_peak_bytes")
        rows.append(
            (
                stage["name"],
                stage["status"],
                format_seconds(stage["seconds"]),
                stage.get("device") or "",
                "" if memory is None else format_bytes(memory),
            )
        )
    headings = ("stage", "status", "time", "device", "peak memory")
    return Fold("Stages", (Table(headings=headings, rows=tuple(rows), numeric=frozenset({"time", "peak memory"})),))
