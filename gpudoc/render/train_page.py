"""A run as one page: result, curves, where the time went, every setting with its source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import gpudoc
from gpudoc.render.chart import Axis, Series, line_chart
from gpudoc.render.page import Block, Figure, Note, Section, Table, page, save_page
from gpudoc.train.events import Finished
from gpudoc.units import format_bytes, format_figure, format_rate, format_seconds

_MOST_POINTS = 240
_KINDS = {"finished": "good", "stopped": "warning", "failed": "broken"}


def train_page(finished: Finished, target: Path) -> None:
    """Write the page of a finished run to `target`; curves come from its metrics.jsonl."""
    found = finished.summary
    rows = read_metrics(Path(str(found["run_dir"])) / "metrics.jsonl")
    sections = [
        Section("Result", _result(found)),
        Section("Curves", _curves(rows)),
        Section("Where the time went", _times(found, rows)),
        Section("Settings", (_settings(found),)),
        Section("Stages", (_stages(found),)),
    ]
    lead = f"{found['steps']} steps on {found['device']}; {found['verdict']}."
    text = page(f"Training of {found['name']}", sections, lead, f"gpudoc {gpudoc.__version__}, {found['schema']}")
    save_page(target, text)


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


def _result(found: Mapping[str, object]) -> tuple[Block, ...]:
    points = []
    if isinstance(found.get("final_loss"), float):
        points.append(f"final training loss {found['final_loss']:.4f}")
    evaluation = found.get("evaluation")
    if isinstance(evaluation, Mapping):
        loss = format_figure(evaluation["loss"], ".4g")
        points.append(f"loss on the eval set {loss}, after step {evaluation['step']}")
        figures = {name: value for name, value in evaluation.items() if name not in ("loss", "step")}
        points += [f"{name.replace('_', ' ')}: {format_figure(value, '.4g')}" for name, value in figures.items()]
    if isinstance(found.get("samples_per_s"), float):
        points.append(format_rate(cast(float, found["samples_per_s"]), "samples/s"))
    points.append(f"peak memory {format_bytes(float(cast(float, found['memory_peak_bytes'])))}")
    for rescue in cast("list[Mapping[str, Mapping[str, object]]]", found.get("rescues") or []):
        what = rescue["rescue"]
        points.append(f"out of memory at step {rescue['step']}: micro batch {what['from_batch']} -> {what['to_batch']}")
    status = str(found["status"])
    title = f"{status}{': ' + str(found['reason']) if found.get('reason') else ''}"
    notes: list[Block] = [Note(kind=_KINDS.get(status, "info"), title=title, points=tuple(points))]
    for advice in cast("list[Mapping[str, str]]", found.get("advice") or []):
        commands = (advice["run"],) if advice["run"] else ()
        notes.append(Note(kind="info", title=advice["say"], commands=commands))
    return tuple(notes)


def _curves(rows: Sequence[Mapping[str, object]]) -> tuple[Block, ...]:
    steps = Axis(label="step")
    evaluations = [
        {"step": row["step"], **cast("Mapping[str, object]", row["eval"])}
        for row in rows
        if isinstance(row.get("eval"), Mapping)
    ]
    loss = [Series(name="training loss", points=_points(rows, "loss"), style="roof")]
    if evaluated := _points(evaluations, "loss"):
        loss.append(Series(name="eval loss", points=evaluated))
    drawn = [
        (line_chart("Loss", loss, steps, Axis(label="loss")), "Means over the steps between two log points."),
        (_one("Learning rate", rows, "lr", "lr"), ""),
        (_one("Throughput", rows, "samples_per_s", "samples/s"), "Evaluation and checkpoints included."),
        (_one("Gradient norm", rows, "grad_norm"), "Of the logged step, before clipping."),
    ]
    return tuple(Figure(svg, caption) for svg, caption in drawn if svg) or ("No step was logged.",)


def _one(title: str, rows: Sequence[Mapping[str, object]], key: str, label: str = "") -> str:
    series = [Series(name=title.lower(), points=_points(rows, key), style="roof")]
    return line_chart(title, series, Axis(label="step"), Axis(label=label or title.lower()))


def _points(rows: Sequence[Mapping[str, object]], key: str) -> tuple[tuple[float, float], ...]:
    found = [
        (float(cast(int, row["step"])), float(cast(float, row[key])))
        for row in rows
        if isinstance(row.get(key), int | float)
    ]
    stride = -(-len(found) // _MOST_POINTS) or 1
    return tuple(found[::stride])


def _times(found: Mapping[str, object], rows: Sequence[Mapping[str, object]]) -> tuple[Block, ...]:
    seconds = cast("Mapping[str, float]", found["seconds"])
    share = cast("Mapping[str, float]", found["share"])
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
                points.append((float(cast(int, row["step"])), 100 * split[phase] / sum(split.values())))
        if any(value >= 1 for _, value in points):
            stride = -(-len(points) // _MOST_POINTS) or 1
            series.append(Series(name=phase.replace("_", " "), points=tuple(points[::stride]), style="roof"))
    chart = line_chart("Share of each phase", series, Axis(label="step"), Axis(label="per cent"))
    return (table, Figure(chart)) if chart else (table,)


def _settings(found: Mapping[str, object]) -> Table:
    settings = cast("Mapping[str, Mapping[str, object]]", found["settings"])
    rows = tuple((name, str(row["value"]), str(row["from"])) for name, row in settings.items())
    return Table(headings=("setting", "value", "from"), rows=rows)


def _stages(found: Mapping[str, object]) -> Table:
    stages = cast("list[Mapping[str, object]]", found["stages"])
    rows = []
    for stage in stages:
        memory = stage.get("memory_peak_bytes")
        rows.append(
            (
                str(stage["name"]),
                str(stage["status"]),
                format_seconds(float(cast(float, stage["seconds"]))),
                str(stage.get("device") or ""),
                format_bytes(float(memory)) if isinstance(memory, int | float) else "",
            )
        )
    headings = ("stage", "status", "time", "device", "peak memory")
    return Table(headings=headings, rows=tuple(rows), numeric=frozenset({"time", "peak memory"}))
