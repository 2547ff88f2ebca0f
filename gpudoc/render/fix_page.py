"""The result of `fix` as one page: the proved changes with their diff, the tried ones, and those not tried and why."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import gpudoc
from gpudoc.fix.document import FIX
from gpudoc.fix.model import name_of
from gpudoc.fix.proof import FixProof, describe
from gpudoc.fix.result import FixResult
from gpudoc.render.fix import headline, title_of, why_lost
from gpudoc.render.page import Badge, Block, Note, Number, Section, page, save_page
from gpudoc.render.table import Table
from gpudoc.units import format_count, format_seconds


def save(path: Path, result: FixResult) -> None:
    """Write the page; GpudocError if it cannot be written."""
    save_page(path, render_page(result))


def render_page(result: FixResult) -> str:
    """The page as text."""
    sections = [Section("What is proved", tuple(_proved(result)))]
    tried = [(_where(one), one.candidate.rewrite, why_lost(one)) for one in result.lost]
    if tried:
        table = Table(headings=("where", "change", "why it is not kept"), rows=tuple(tried))
        sections.append(Section("Tried, not kept", (table,)))
    refused = [(f"{name_of(one.file)}:{one.line}", one.rewrite, one.reason) for one in result.refused]
    if refused:
        table = Table(headings=("where", "change", "why it could be wrong"), rows=tuple(refused))
        sections.append(Section("Not tried", (table,)))
    if result.evidence.hot:
        rows = tuple((f"{name_of(one.file)}:{one.line}", f"{one.share:.0%}") for one in result.evidence.hot)
        table = Table(
            headings=("line", "share of a step"), rows=rows, numeric=frozenset({"share of a step"}),
            shares=frozenset({"share of a step"}),
        )  # fmt: skip
        sections.append(Section("Where the steps spend their time", (table,)))
    return page(
        "gpudoc fix",
        sections,
        lead=shlex.join(result.options.command),
        foot=f"gpudoc {gpudoc.__version__}, {FIX}",
        badge=Badge("warning" if result.accepted else "info" if result.exit_code else "good", headline(result)),
        numbers=[Number("launches", str(result.launches), remark=f"in {format_seconds(result.seconds)}")],
    )


def _proved(result: FixResult) -> Iterator[Block]:
    for proof in result.accepted:
        besides = (*proof.candidate.besides, *([proof.why] if proof.why else []))
        starts = tuple(f"export {name}={shlex.quote(value)}" for name, value in proof.candidate.environment)
        yield Note(
            kind="good",
            title=f"{title_of(proof.candidate.rewrite)}: {_where(proof)}",
            text=describe(proof),
            points=besides,
            commands=starts,
        )
    if result.diff:
        yield Note(kind="info", title="The change", commands=(result.diff.decode("utf-8"),))
    if not result.accepted:
        looked = "" if result.look is None else f" Looked at {format_count(result.look.steps, 'step')}."
        yield f"{headline(result)}{looked}"
    yield from (Note(kind="info", title=note) for note in result.notes)


def _where(proof: FixProof) -> str:
    return f"{name_of(proof.candidate.file)}:{proof.candidate.line}"
