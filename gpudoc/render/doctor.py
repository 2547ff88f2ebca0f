"""What doctor says: the first screen, everything with --verbose, and the catalogue."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from difflib import get_close_matches

from gpudoc.doctor.model import Cause, Finding, Report, Setting
from gpudoc.doctor.registry import CATALOGUE, CAUSES
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent, Fact, Machine, T
from gpudoc.render import console
from gpudoc.units import format_bytes

_MARK = {"broken": "✗", "warning": "!", "info": "i"}
_WIDTH = 118
_MOST_LINES = 12
# guesses by topic are for --verbose and for a text that nothing explains
_WORTH_NAMING = 0.3


def render(report: Report, *, verbose: bool = False) -> str:
    """The report as plain text: at most 12 lines, or everything when `verbose`."""
    lines = [headline(report)]
    if verbose:
        for finding in report.findings:
            lines += ["", *_whole(finding)]
        lines += ["", *_appendix(report)]
        return "\n".join(line for line in lines).rstrip() + "\n"
    if report.findings and report.verdict in ("broken", "warning"):
        lines += _first(report.findings[0], named=report.source != "file") + _others(report)
    elif report.verdict == "unknown":
        lines += _unknown(report)
    else:
        lines += _healthy(report)
    return "\n".join(lines) + "\n"


def show_catalogue(cause_id: str | None, *, as_json: bool = False) -> int:
    """Print every cause, or one with its fix and sources; the exit code. GpudocError for an id that does not exist."""
    rows = [c for c in CAUSES if cause_id in (None, c.id)]
    if not rows:
        near = get_close_matches(cause_id or "", CATALOGUE, n=1)
        raise GpudocError(
            f"no such cause: {cause_id!r}", hint=f"did you mean {near[0]}?" if near else "gpudoc doctor --list"
        )
    if as_json:
        console.print_json({"schema": "gpudoc.causes.v1", "causes": [_plain_cause(c) for c in rows]})
        return 0
    text = _explain(rows[0]) if cause_id is not None else _list(rows)
    console.stdout(plain=True).print(text, end="", soft_wrap=True)
    return 0


def _plain_cause(cause: Cause) -> dict[str, object]:
    fix = [{"say": r.say, "run": r.run, "needs_root": r.needs_root} for r in cause.fix(Setting())]
    row = {"id": cause.id, "family": cause.family, "title": cause.title, "meaning": cause.meaning, "why": cause.why}
    return {**row, "fix": fix, "explains": list(cause.explains), "sources": list(cause.sources)}


def _list(rows: Sequence[Cause]) -> str:
    width = max(len(c.id) for c in rows)
    lines: list[str] = []
    for family in ("environment", "runtime", "live"):
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
        lines.append(f"fix: {remedy.say}" + ("  (needs root)" if remedy.needs_root else ""))
        lines += [f"  $ {part}" for part in remedy.run.splitlines()]
    lines += [f"explains: {name}" for name in cause.explains]
    lines += [f"source: {source}" for source in cause.sources]
    return "\n".join(lines) + "\n"


def headline(report: Report) -> str:
    """Line one: device, driver, Python examined, torch; what is not known is left out."""
    if report.source == "fleet":
        odd = f"; the odd one: {report.unexplained[0].value}" if report.unexplained else ""
        return _cut(f"{', '.join(report.recognised)} compared{odd}")
    machine = report.machine
    parts = [_gpus(machine)]
    driver = _first_known(machine.driver.module_version, machine.driver.library_version)
    if driver:
        parts.append(f"driver {driver}" + _cuda(machine))
    python = _text(machine.python.version)
    if python:
        where = _text(machine.python.executable)
        parts.append(f"Python {python}" + (f" ({where})" if where and report.source == "machine" else ""))
    torch = _text(machine.torch.version)
    if torch:
        parts.append(f"torch {torch}")
    return _cut(" · ".join(p for p in parts if p) or _what_was_read(report))


def _what_was_read(report: Report) -> str:
    kinds = [kind.replace("_", " ") for kind in report.recognised]
    return f"read: {', '.join(kinds)}" if kinds else f"read: {report.source}, of no kind that is known"


def _first(finding: Finding, *, named: bool) -> list[str]:
    """The root cause; a fact is named before its value, a quoted line of text speaks for itself."""
    lines = [_cut(f"{_MARK[finding.severity]} {finding.title}  [{finding.id}, {finding.confidence:.0%} sure]")]
    fixes: list[str] = []
    for remedy in finding.fix[:2]:
        fixes.append(_cut(f"  fix: {remedy.say}"))
        fixes += [f"    $ {part}" for part in remedy.run.splitlines()[:2]]
    if finding.explains:
        fixes.append(_cut(f"  explains: {'; '.join(finding.explains)}"))
    fixes = fixes[:5]
    room = _MOST_LINES - 3 - len(lines) - len(fixes)
    for seen in finding.evidence[:3]:
        what = f"{seen.fact}: {seen.value}" if named else seen.value
        wrapped = _wrap(f"  seen: {what}  ({seen.origin})" if seen.origin else f"  seen: {what}")
        taken = wrapped if len(wrapped) <= room else [_cut(wrapped[0])] if room else []
        lines += taken
        room -= len(taken)
    return lines + fixes


def _others(report: Report) -> list[str]:
    rest = [f for f in report.findings[1:] if f.confidence >= _WORTH_NAMING]
    lines = []
    if rest:
        fleet = report.source == "fleet"
        named = "; ".join(f.title if fleet else f"{f.id} ({f.confidence:.0%})" for f in rest[:3])
        lines.append(_cut(f"also: {named}" + (f" and {len(rest) - 3} more" if len(rest) > 3 else "")))
    explain = "" if report.source == "fleet" else f", or gpudoc doctor --explain {report.findings[0].id}"
    lines.append(_cut(f"next: gpudoc doctor --verbose{explain}"))
    return lines


def _unknown(report: Report) -> list[str]:
    lines = [
        "? Something is wrong that no known cause explains." if report.unexplained else "? Nothing here is recognised."
    ]
    lines += [_cut(f"  seen: {o.value}  ({o.origin})") for o in report.unexplained[:3]]
    lines += [_cut(f"  would decide it: {fact}") for fact in report.deciding_facts[:2]]
    lines += [_cut(f"  perhaps: {f.title}  [{f.id}, {f.confidence:.0%} sure]") for f in report.findings[:3]]
    return lines


def _healthy(report: Report) -> list[str]:
    lines = [_cut(f"No problem found: {len(report.passed)} checks passed, {_not_checked(report)}")]
    for finding in report.findings[:4]:
        guessed = finding.severity == "info" and finding.confidence <= _WORTH_NAMING
        mark = "perhaps, by its words alone:" if guessed else _MARK[finding.severity]
        lines.append(_cut(f"  {mark} {finding.title}" + (f"  [{finding.id}]" if guessed else "")))
    lines.append("next: gpudoc doctor train.log · gpudoc doctor --pid PID · gpudoc bench")
    return lines


def _not_checked(report: Report) -> str:
    if not report.skipped:
        return "none left out"
    reasons: dict[str, int] = {}
    for skipped in report.skipped:
        reasons[skipped.because] = reasons.get(skipped.because, 0) + 1
    most = max(reasons, key=lambda reason: reasons[reason])
    return f"{len(report.skipped)} not checked (mostly: {most})"


def _whole(finding: Finding) -> list[str]:
    lines = [
        f"{_MARK[finding.severity]} {finding.title}  [{finding.id}, {finding.severity}, {finding.confidence:.0%} sure]"
    ]
    lines.append(f"  why: {finding.why}")
    lines += [f"  seen: {o.fact}: {o.value}  ({o.origin})" for o in finding.evidence]
    lines += [f"  explains: {title}" for title in finding.explains]
    for remedy in finding.fix:
        lines.append(f"  fix: {remedy.say}" + ("  (needs root)" if remedy.needs_root else ""))
        lines += [f"    $ {part}" for part in remedy.run.splitlines()]
    if finding.url:
        lines.append(f"  more: {finding.url}")
    return lines


def _appendix(report: Report) -> list[str]:
    lines = [f"verdict: {report.verdict}"]
    lines += [f"unexplained: {o.value}  ({o.origin})" for o in report.unexplained]
    lines += [f"would decide it: {fact}" for fact in report.deciding_facts]
    lines.append(f"passed ({len(report.passed)}): {', '.join(report.passed) or 'none'}")
    lines.append(f"not checked ({len(report.skipped)}):" + ("" if report.skipped else " none"))
    lines += [f"  {s.id}: {s.because}" for s in report.skipped]
    lines += [f"crashed: {c.id}: {c.error}" for c in report.crashed]
    lines.append("seconds: " + ", ".join(f"{name} {s:.2f}" for name, s in report.seconds.items()))
    return lines


def _gpus(machine: Machine) -> str:
    gpus = machine.gpus
    if isinstance(gpus, Absent):
        return ""
    if not gpus:
        return "no GPU"
    first = gpus[0]
    name = _text(first.name) or "GPU"
    memory = first.memory_total_bytes
    size = "" if isinstance(memory, Absent) else f" {format_bytes(memory)}"
    return (f"{len(gpus)} × " if len(gpus) > 1 else "") + name + size


def _cuda(machine: Machine) -> str:
    cuda = machine.driver.cuda_version
    return "" if isinstance(cuda, Absent) else f" (CUDA {cuda[0]}.{cuda[1]})"


def _text(fact: Fact[T]) -> str:
    return "" if isinstance(fact, Absent) else str(fact)


def _first_known(*facts: Fact[str]) -> str:
    return next((f for f in facts if not isinstance(f, Absent)), "")


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent="        ", break_on_hyphens=False)[:2] or [text]


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
