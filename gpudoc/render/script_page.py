"""A search over a script as one self-contained page: the unchanged script, the result, memory, every launch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpudoc.render.page import Block, Note, Number, Section, page, save_page
from gpudoc.render.script import headline, look_lines, train_command, tune_command
from gpudoc.render.trials import loader_table, memory_figure, trial_table
from gpudoc.render.verdict import gain_badge, gain_numbers
from gpudoc.script.search import ScriptResult
from gpudoc.units import format_rate, format_seconds


def save(path: Path, result: ScriptResult) -> None:
    """Write the page; GpudocError if it cannot be written."""
    save_page(path, render_page(result))


def render_page(result: ScriptResult) -> str:
    """The page as text."""
    look = Note(kind="info", title=str(result.command), points=tuple(line.strip() for line in look_lines(result.look)))
    sections = [
        Section("The script as it is", (look,)),
        Section("What was found", tuple(_found(result))),
        *_measured(result),
    ]
    made = result.profile.made if result.profile is not None else None
    return page(
        "gpudoc tune -- a script",
        [section for section in sections if section.blocks],
        lead=headline(result),
        badge=None
        if result.profile is None
        else gain_badge(result.findings.verdict, result.findings.gain, "the script as it is"),
        numbers=list(_numbers(result)),
        foot=f"gpudoc {made.gpudoc}, {made.at}; {result.isolation}" if made else result.isolation,
    )


def _numbers(result: ScriptResult) -> Iterable[Number]:
    look, found = result.look, result.findings
    unit = "steps/s" if look.samples_per_s is None else "samples/s"
    if result.profile is not None:
        yield from gain_numbers(found.verdict, found.gain, unit=unit)
    value, _, unit = format_seconds(look.step_s).partition(" ")
    yield Number(
        "step as it is", value, unit, "" if look.samples_per_s is None else format_rate(look.samples_per_s, "samples/s")
    )
    yield Number("waiting for data", f"{look.wait_share:.0%}", remark="of a step as it is")
    if found.feed is not None and result.profile is not None:
        before = "" if look.training is None else f"{look.training.num_workers} before"
        yield Number("loader workers", str(found.feed.num_workers), remark=before)
    if found.batch is not None and result.profile is not None:
        yield Number("batch", f"{found.batch:,}", remark="" if look.batch is None else f"the script's: {look.batch:,}")


def _found(result: ScriptResult) -> Iterable[Block]:
    if result.profile is None:
        yield Note(kind="info", title="Nothing was tuned", points=result.advice, commands=(tune_command(result),))
        return
    points = (*(result.stored.kept if result.stored else ()), *result.profile.why)
    kind = "good" if result.findings.verdict.kind == "faster" else "info"
    yield Note(kind=kind, title="Run it with this", points=points, commands=(train_command(result),))
    if result.lines:
        written = tuple(f"{line}" for line in result.lines)
        yield Note(kind="info", title="Or write it into the script", commands=written)
    if result.advice:
        yield Note(kind="info", title="Noticed, but not set", points=result.advice)


def _measured(result: ScriptResult) -> Iterable[Section]:
    if result.profile is None:
        return
    evidence = result.profile.evidence
    measured = [row for row in evidence.trials if row.kind == "fit" and row.peak_bytes is not None]
    if result.limit_bytes is not None and sum(row.fits for row in measured) > 1:
        yield Section("Memory against batch", (memory_figure(evidence, measured, result.limit_bytes),))
    if evidence.loader:
        yield Section("The loader", (loader_table(evidence.loader),))
    yield Section("Every launch", (trial_table(evidence.trials, "launch"),))
