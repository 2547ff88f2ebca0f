"""A search as one self-contained page: the three batches, memory and speed against the batch, every trial."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpudoc.profile.model import Settings, VariantTrial
from gpudoc.render.chart import Axis, Series, line_chart
from gpudoc.render.page import Block, Figure, Fold, Note, Number, Section, page, save_page
from gpudoc.render.scaling_page import scaling_sections
from gpudoc.render.table import Table
from gpudoc.render.trials import loader_table, memory_figure, trial_table
from gpudoc.render.tune import headline, losses_in_words, train_command
from gpudoc.render.verdict import gain_badge, gain_numbers
from gpudoc.tune.model.speed import fit_step_time
from gpudoc.tune.run import TuneResult
from gpudoc.tune.search.scaling import ScalingResult
from gpudoc.units import format_bytes, format_rate, format_seconds

_SHAPES_MEMORY = ("precision", "allocator", "activation_checkpointing")


def save(path: Path, result: TuneResult | ScalingResult) -> None:
    """Write the page; GpudocError if it cannot be written."""
    save_page(path, render_page(result))


def render_page(result: TuneResult | ScalingResult) -> str:
    """The page as text."""
    if isinstance(result, ScalingResult):
        return page(
            "gpudoc tune --only scaling",
            scaling_sections(result.scaling),
            lead=f"{result.config.name}: {result.scaling.verdict}.",
            foot=f"{result.num_trials} trials in {format_seconds(result.seconds)}",
        )
    sections = [
        Section("The settings, and why", (_settings(result),)),
        Section("Levers", tuple(_levers(result))),
        Section("Memory against batch", tuple(_memory(result))),
        Section("Speed against batch", tuple(_speed(result))),
        Section("The loader", (loader_table(loaders),) if (loaders := result.profile.evidence.loader) else ()),
        *(() if result.scaling is None else scaling_sections(result.scaling)),
        Section("Behind the figures", (_trials(result),)),
    ]
    hardware = result.profile.hardware
    lead = f"{result.context.config.name} on {hardware.title}, torch {hardware.torch}: "
    made = result.profile.made
    return page(
        "gpudoc tune",
        [section for section in sections if section.blocks],
        lead=lead + headline(result),
        foot=f"gpudoc {made.gpudoc}, {made.at}" if made else "",
        badge=gain_badge(
            result.findings.verdict, result.findings.gain, "the default", asked=result.findings.asked_for_speed
        ),
        numbers=list(_numbers(result)),
    )


def _numbers(result: TuneResult) -> Iterable[Number]:
    evidence, largest = result.profile.evidence, result.findings.largest
    chosen = result.stored.profile.settings
    speed = result.findings.gain.chosen
    found = result.findings
    yield from gain_numbers(found.verdict, found.gain, unit="samples/s") if found.asked_for_speed else ()
    yield Number("micro batch", f"{chosen.micro_batch:,}", remark=f"in {chosen.precision}")
    if speed is not None:
        value, _, unit = format_rate(speed.middle, "samples/s").partition(" ")
        yield Number("speed", value, unit, "with your data")
    yield Number("loader workers", str(chosen.loader.num_workers))
    if evidence.largest_batch is not None:
        proof = "proved" if largest is not None and largest.is_proved else "it ran, but is not proved"
        yield Number("largest batch", f"{evidence.largest_batch:,}", remark=proof)
    if evidence.memory_limit_bytes is not None:
        value, _, unit = format_bytes(evidence.memory_limit_bytes).partition(" ")
        yield Number("memory limit", value, unit)


def _settings(result: TuneResult) -> Note:
    is_faster = result.findings.asked_for_speed and result.findings.verdict.kind == "faster"
    in_table = {row.why for row in result.profile.evidence.variants}
    return Note(
        kind="good" if is_faster else "info",
        title="Train with this profile",
        points=(*result.stored.kept, *(one for one in result.profile.why if one not in in_table)),
        commands=(train_command(result),),
    )


def _levers(result: TuneResult) -> Iterable[Block]:
    rows = result.profile.evidence.variants
    if not rows:
        return
    told = [
        (
            row.name,
            "" if row.times is None else f"{row.times:.2f}",
            "" if row.losses is None else str(row.losses.steps),
            *(("", "") if row.losses is None else losses_in_words(row.losses)),
            _lever_verdict(row),
        )
        for row in rows
    ]
    headings = ("lever", "times the speed", "steps", "losses differ", "allowed", "verdict")
    yield Table(headings=headings, rows=tuple(told), numeric=frozenset(headings[1:5]))


def _lever_verdict(row: VariantTrial) -> str:
    """The outcome of a lever, in the words of the search if nothing was measured."""
    if row.kept:
        return "kept"
    if row.times is None:
        return row.why.removeprefix(f"{row.name}: ")
    return f"not used: {row.rejected}" if row.rejected else "not used"


def _memory(result: TuneResult) -> Iterable[Block]:
    evidence, chosen, largest = result.profile.evidence, result.profile.settings, result.findings.largest
    if not any(row.peak_bytes is not None for row in evidence.trials):
        return
    measured = [
        row
        for row in evidence.trials
        if row.peak_bytes is not None and row.kind in ("calibrate", "fit") and _same_memory(row.settings, chosen)
    ]
    fitted = []
    if largest is not None and largest.line is not None:
        ends = (1, max(2, largest.batch))
        fitted.append(Series(name="fitted", points=tuple((float(b), largest.line.at(b)) for b in ends), style="roof"))
    yield memory_figure(evidence, measured, result.context.limit_bytes, *fitted)


def _same_memory(one: Settings | None, other: Settings) -> bool:
    return one is None or all(getattr(one, name) == getattr(other, name) for name in _SHAPES_MEMORY)


def _speed(result: TuneResult) -> Iterable[Block]:
    points = [p for p in result.findings.speeds if p.samples_per_s]
    if len(points) < 2:
        return
    measured = tuple((float(p.batch), p.samples_per_s or 0.0) for p in points)
    series = [Series(name="measured", points=measured)]
    line = fit_step_time(points)
    if line is not None:
        fitted = tuple((float(p.batch), p.batch / line.at(p.batch)) for p in points)
        series.append(Series(name="fit: fixed + per sample", points=fitted, style="roof"))
    svg = line_chart("Samples per second", series, Axis(label="batch", log=True, base=2), Axis(label="samples/s"))
    yield Figure(svg, "One process with data ready in memory; the median of the timed steps.")


def _trials(result: TuneResult) -> Fold:
    rows = result.profile.evidence.trials
    return Fold("Every trial", (trial_table(rows, "trial"),), f"{len(rows)} trials")
