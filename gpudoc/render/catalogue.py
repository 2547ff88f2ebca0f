"""The catalogue of causes on a screen: all of them, or one with its fix and sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from gpudoc.doctor.model import Cause, Family, Setting
from gpudoc.doctor.registry import CATALOGUE, no_such_cause
from gpudoc.facts.readers.snapshot import dump_facts
from gpudoc.facts.redact import whole
from gpudoc.render import console
from gpudoc.render.doctor import marked
from gpudoc.render.frame import show


def show_catalogue(cause_id: str | None, *, as_json: bool = False) -> int:
    """Print every cause, or one with its fix and sources; returns the exit code. GpudocError for an unknown id."""
    rows = [CATALOGUE[one] for one in CATALOGUE if cause_id in (None, one)]
    if not rows:
        raise no_such_cause(cause_id or "")
    if as_json:
        console.print_json(whole({"schema": "gpudoc.causes.v1", "causes": [_plain_cause(c) for c in rows]}))
        return 0
    text = _explain(rows[0]) if cause_id is not None else _list(rows)
    show(text)
    return 0


def _plain_cause(cause: Cause) -> dict[str, object]:
    fix = [dump_facts(r) for r in cause.fix(Setting())]
    row = {"id": cause.id, "family": cause.family, "title": cause.title, "meaning": cause.meaning, "why": cause.why}
    return {**row, "fix": fix, "explains": list(cause.explains), "sources": list(cause.sources)}


def _list(rows: Sequence[Cause]) -> str:
    width = max(len(c.id) for c in rows)
    lines: list[str] = []
    for family in get_args(Family):
        inside = [c for c in rows if c.family == family]
        lines += ["", f"{family} ({len(inside)})"] if lines else [f"{family} ({len(inside)})"]
        lines += [f"  {c.id:{width}}  {c.meaning}" for c in sorted(inside, key=lambda c: c.id)]
    return "\n".join([*lines, "", f"{len(rows)} causes; one of them: gpudoc doctor --explain ID"]) + "\n"


def _explain(cause: Cause) -> str:
    lines = [
        f"{cause.title}  [{cause.id}, {cause.family}]",
        "",
        f"means: {cause.meaning}",
        f"why it matters: {cause.why}",
    ]
    for remedy in cause.fix(Setting()):
        lines.append(f"fix: {marked(remedy)}" + ("  (needs root)" if remedy.needs_root else ""))
        lines += [f"  $ {part}" for part in remedy.run.splitlines()]
    lines += [f"explains: {name}" for name in cause.explains]
    lines += [f"source: {source}" for source in cause.sources]
    return "\n".join(lines) + "\n"
