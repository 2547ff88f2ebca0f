"""What doctor says: the first screen, everything with --verbose, and the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from gpudoc.doctor.model import Cause, Finding, Observation, Report, Setting
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent, Fact, Gpu, Machine, T
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.snapshot import dump_facts
from gpudoc.knowledge.cause_rows import AREAS, area_of, count_by_area
from gpudoc.render import console
from gpudoc.render.frame import MARK, NARROW, PASSED, UNCHECKED, WIDE, Form, box, fold, join_lines, show
from gpudoc.render.gpus import gpu_facts, gpu_table, holder_table, shown_gpus, text_table
from gpudoc.units import format_bytes, format_count

_MOST_LINES, _MOST_HOLDERS = 12, 10
# below so many columns a sentence may take twice the lines
_SLIM = 60
_BETWEEN = " · "
_COUNTED = Pattern(r"\d GPUs? |\bGPU \d")
_ABOUT_HOLDERS = ("oom_other_process", "gpu_memory_orphaned", "compute_mode_exclusive", "gpu_shared")
# guesses by topic are for --verbose and for a text that nothing explains
WORTH_NAMING = 0.3


def render(report: Report, *, verbose: bool = False, width: int = NARROW, boxed: bool = False) -> str:
    """The report as text: the machine, its GPUs, a line for each area, the root cause; everything when `verbose`."""
    shape = Form(width, boxed)
    lines = [*_head(report, width), *_tables(report, verbose, width)]
    if verbose:
        for finding in report.findings:
            lines += ["", *_whole(finding)]
        lines += ["", *_appendix(report)]
        return join_lines(lines).rstrip() + "\n"
    lines += _areas(report, width)
    if report.findings and report.verdict in ("broken", "warning"):
        last = _others(report, width)
        room = (_MOST_LINES if width >= _SLIM else 2 * _MOST_LINES) - len(_head(report, width)) - len(last)
        first = _first(report.findings[0], shape.inner, room, named=report.source != "file")
        lines += box(first, shape) + last
    elif report.verdict == "unknown":
        lines += _unknown(report, width)
    else:
        lines += _healthy(report, width)
    return join_lines(lines)


def _areas(report: Report, width: int) -> list[str]:
    """A line for each area of a machine: what is wrong there, else how much was checked; none for a text."""
    if report.source != "machine":
        return []
    passed = count_by_area(report.passed)
    skipped = count_by_area(s.id for s in report.skipped)
    lines = []
    for area in AREAS:
        wrong = [f for f in report.findings if area_of(f.id) == area and f.confidence >= WORTH_NAMING]
        crashed = [c.id for c in report.crashed if area_of(c.id) == area]
        if not (wrong or crashed or area in passed or area in skipped):
            continue
        missing = [s.because for s in report.skipped if area_of(s.id) == area]
        told = [_counted(passed.get(area, 0), missing)]
        mark = PASSED if passed.get(area, 0) >= len(missing) else UNCHECKED
        if crashed:
            failed = f"{format_count(len(crashed), 'check')} failed by itself: {', '.join(crashed[:3])}"
            mark, told = MARK["warning"], [failed, *told]
        if wrong:
            told = [f"{f.title}{cards_of(f)}" for f in wrong[:1]] + [f"{len(wrong) - 1} more"] * (len(wrong) > 1)
            # that something is not there is no fault, and nothing that passed
            mark = MARK[wrong[0].severity] if wrong[0].severity != "info" else mark
        lines += _wrap(f"  {mark} {area:9}  {'; '.join(filter(None, told))}", width, most=1)
    return ["", *lines, ""] if lines else []


def _counted(passed: int, missing: Sequence[str]) -> str:
    told = [f"{format_count(passed, 'check')} passed"] if passed else []
    if missing:
        told.append(f"{len(missing)} not made: {_most_common(missing)}")
    return ", ".join(told)


def _tables(report: Report, verbose: bool, width: int) -> list[str]:
    """The GPUs where more is known of them than names, and who holds them where that is the matter."""
    if report.source == "fleet":
        return []
    gpus = gpu_table(report.machine)
    asked = verbose or any(f.id in _ABOUT_HOLDERS and f.severity != "info" for f in report.findings)
    held = holder_table(report.machine, *([] if verbose else [_MOST_HOLDERS])) if asked else None
    return [line for table in (gpus, held) if table is not None for line in text_table(table, width)]


def show_catalogue(cause_id: str | None, *, as_json: bool = False) -> int:
    """Print every cause, or one with its fix and sources; the exit code. GpudocError for an id that does not exist."""
    rows = [CATALOGUE[one] for one in CATALOGUE if cause_id in (None, one)]
    if not rows:
        near = get_close_matches(cause_id or "", CATALOGUE, n=1)
        raise GpudocError(
            f"no such cause: {cause_id!r}", hint=f"did you mean {near[0]}?" if near else "gpudoc doctor --list"
        )
    if as_json:
        console.print_json({"schema": "gpudoc.causes.v1", "causes": [_plain_cause(c) for c in rows]})
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
        lines.append(f"fix: {remedy.marked}" + ("  (needs root)" if remedy.needs_root else ""))
        lines += [f"  $ {part}" for part in remedy.run.splitlines()]
    lines += [f"explains: {name}" for name in cause.explains]
    lines += [f"source: {source}" for source in cause.sources]
    return "\n".join(lines) + "\n"


def headline(report: Report) -> str:
    """What was examined: GPUs, driver, torch, the Python examined; what is not known is left out."""
    if report.source == "fleet":
        odd = f"; the odd one: {report.unexplained[0].value}" if report.unexplained else ""
        return f"{', '.join(report.recognised)} compared{odd}"
    machine = report.machine
    parts = [_gpus(machine)]
    driver = _driver(machine)
    if driver:
        parts.append(f"driver {driver}" + _cuda(machine))
    torch = _text(machine.torch.version)
    if torch:
        parts.append(f"torch {torch}")
    python = _text(machine.python.version)
    if python:
        where = _text(machine.python.executable)
        parts.append(f"Python {python}" + (f" ({where})" if where and report.source == "machine" else ""))
    return _BETWEEN.join(p for p in parts if p) or _what_was_read(report)


def _head(report: Report, width: int) -> list[str]:
    """The headline over as many lines as it needs, broken between its parts."""
    lines: list[str] = []
    for part in headline(report).split(_BETWEEN):
        if lines and len(lines[-1]) + len(_BETWEEN) + len(part) <= width:
            lines[-1] += _BETWEEN + part
        else:
            lines.append(("  " if lines else "") + part)
    return [line for whole in lines for line in _wrap(whole, width, indent="  ")]


def _what_was_read(report: Report) -> str:
    kinds = [kind.replace("_", " ") for kind in report.recognised]
    return f"read: {', '.join(kinds)}" if kinds else f"read: {report.source}, of no kind that is known"


def _first(finding: Finding, width: int, room: int, *, named: bool) -> list[str]:
    """The root cause; a fact is named before its value, a quoted line of text speaks for itself."""
    title = f"{MARK[finding.severity]} {finding.title}{cards_of(finding)}"
    lines = _wrap(f"{title}  [{finding.id}, {finding.confidence:.0%} sure]", width, indent="  ")
    fixes: list[str] = []
    for remedy in finding.fix[:2]:
        fixes += _wrap(f"  fix: {remedy.marked}", width)
        fixes += [f"    $ {part}" for part in remedy.run.splitlines()[:2]]
    if finding.explains:
        fixes += _wrap(f"  explains: {'; '.join(finding.explains)}", width, most=1)
    fixes = fixes[: room - len(lines) - 1]
    room -= len(lines) + len(fixes)
    for told in list(dict.fromkeys(_seen(one, named) for one in finding.evidence))[:3]:
        taken = _wrap(told, width, most=min(room, 2)) if room > 0 else []
        lines += taken
        room -= len(taken)
    return lines + fixes


def _seen(one: Observation, named: bool) -> str:
    what = f"{one.fact}: {one.value}" if named else one.value
    return f"  seen: {what}  ({one.origin})" if one.origin else f"  seen: {what}"


def cards_of(finding: Finding) -> str:
    """': GPU 3', ': GPU 0, 1, 2', for the GPUs that a finding is about and its title does not count; else ''."""
    numbers = sorted(card.index for card in finding.cards if not isinstance(card.index, Absent))
    if not numbers or _COUNTED.search(finding.title):
        return ""
    whole = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
    return f": GPU {f'{numbers[0]} to {numbers[-1]}' if whole else ', '.join(map(str, numbers))}"


def _others(report: Report, width: int) -> list[str]:
    rest = [f for f in report.findings[1:] if f.confidence >= WORTH_NAMING]
    lines = []
    if rest and report.source != "machine":
        fleet = report.source == "fleet"
        named = "; ".join(f.title if fleet else f"{f.id} ({f.confidence:.0%})" for f in rest[:3])
        more = f" and {len(rest) - 3} more" if len(rest) > 3 else ""
        lines += _wrap(f"also: {named}{more}", width, indent="  ")
    explain = "" if report.source == "fleet" else f", or gpudoc doctor --explain {report.findings[0].id}"
    return [*lines, *_wrap(f"next: gpudoc doctor --verbose{explain}", width, indent="  ")]


def _unknown(report: Report, width: int) -> list[str]:
    first = report.unexplained[0] if report.unexplained else None
    if first is None:
        lines = ["? Nothing here is recognised."]
    elif first.fact in ("documentation", "source code"):
        lines = _wrap(f"? This is {first.fact}, not what a machine said: {first.value}.", width, indent="  ")
    elif first.fact == "complaint":
        lines = ["? Nothing in it proves a cause. By its words it is most likely one of these:"]
        lines += _guesses(report, width)
    else:
        lines = ["? Something is wrong that no known cause explains."]
        for seen in report.unexplained[:3]:
            lines += _wrap(f"  seen: {seen.value}  ({seen.origin})", width)
    for fact in report.deciding_facts[:2]:
        lines += _wrap(f"  would decide it: {fact}", width)
    return lines if first is not None and first.fact == "complaint" else lines + _guesses(report, width)


def _guesses(report: Report, width: int) -> list[str]:
    """What it may be by its words alone, in order; how unsure each is says the line, not a figure of a few per cent."""
    likely = [f for f in report.findings[:3] if f.confidence * 2 >= report.findings[0].confidence]
    told = [f"  perhaps: {f.title}  [{f.id}, a guess]" for f in likely]
    return [line for guess in told for line in _wrap(guess, width)]


def _healthy(report: Report, width: int) -> list[str]:
    lines = _wrap(f"{_no_problem(report)}", width, indent="  ")
    in_areas = [f for f in report.findings if f.confidence >= WORTH_NAMING] if report.source == "machine" else []
    for finding in report.findings[:4]:
        if finding in in_areas:
            continue
        guessed = finding.severity == "info" and finding.confidence <= WORTH_NAMING
        mark = "perhaps, by its words alone:" if guessed else MARK[finding.severity]
        lines += _wrap(f"  {mark} {finding.title}" + (f"  [{finding.id}]" if guessed else ""), width)
    return [*lines, *_wrap(_next(report), width, indent="  ")]


def _no_problem(report: Report) -> str:
    """What was checked, what could not be, and of a text also what it says nothing of."""
    count = len(report.passed)
    if report.source != "file":
        absent = next((f"{f.title}. " for f in report.findings if f.id == "no_gpu_on_machine"), "")
        if report.skipped:
            could_not = f"{len(report.skipped)} could not be made (--verbose says why)"
            return f"{absent}No problem found in the {count} checks that could be made; {could_not}."
        return f"{absent}No problem found: {count} checks passed."
    silent = _silent(report.machine)
    nothing = f"; it says nothing of {silent}" if silent else ""
    if not report.passed:
        return f"No error recognised in this text{nothing}."
    return f"No problem found in what this text says: {count} checks passed ({by_area(report.passed)}){nothing}."


def _driver(machine: Machine) -> str:
    driver = machine.driver
    return _first_known(driver.module_version, driver.nvml_driver_version, driver.library_version)


def _silent(machine: Machine) -> str:
    """Of driver, GPU and torch those that a text does not speak of."""
    known = {"driver": _driver(machine), "GPU": shown_gpus(machine), "PyTorch": _text(machine.torch.version)}
    silent = [name for name, value in known.items() if not value]
    return " or ".join([", ".join(silent[:-1]), silent[-1]] if len(silent) > 1 else silent)


def _next(report: Report) -> str:
    if report.source == "file":
        return "next: gpudoc doctor (this machine) · gpudoc doctor --pid PID (a running job)"
    return "next: gpudoc doctor train.log · gpudoc doctor --pid PID · gpudoc bench"


def by_area(ids: Sequence[str]) -> str:
    """'GPU 12, driver 8': how many of the causes belong to each area."""
    return ", ".join(f"{area} {count}" for area, count in count_by_area(ids).items())


def _most_common(reasons: Sequence[str]) -> str:
    return max(dict.fromkeys(reasons), key=reasons.count)


def _whole(finding: Finding) -> list[str]:
    lines = [
        f"{MARK[finding.severity]} {finding.title}  [{finding.id}, {finding.severity}, {finding.confidence:.0%} sure]"
    ]
    lines.append(f"  why: {finding.why}")
    lines += [f"  seen: {o.fact}: {o.value}  ({o.origin})" for o in finding.evidence]
    lines += [f"  explains: {title}" for title in finding.explains]
    for remedy in finding.fix:
        lines.append(f"  fix: {remedy.marked}" + ("  (needs root)" if remedy.needs_root else ""))
        lines += [f"    $ {part}" for part in remedy.run.splitlines()]
    if finding.url:
        lines.append(f"  more: {finding.url}")
    return lines


def _appendix(report: Report) -> list[str]:
    lines = [f"verdict: {report.verdict}"]
    lines += [f"unexplained: {o.value}  ({o.origin})" for o in report.unexplained]
    lines += [f"would decide it: {fact}" for fact in report.deciding_facts]
    passed = list(report.passed)
    lines.append(f"passed ({len(passed)}): {by_area(passed) or 'none'}")
    for area in count_by_area(passed):
        lines += _wrap(f"  {area}: {', '.join(i for i in passed if area_of(i) == area)}", WIDE, indent="    ", most=9)
    lines.append(f"not checked ({len(report.skipped)}):" + ("" if report.skipped else " none"))
    for area in count_by_area(s.id for s in report.skipped):
        lines += [f"  {area}: {s.id}: {s.because}" for s in report.skipped if area_of(s.id) == area]
    lines += [f"crashed: {c.id}: {c.error}" for c in report.crashed]
    lines += gpu_facts(report.machine)
    lines.append("seconds: " + ", ".join(f"{name} {s:.2f}" for name, s in report.seconds.items()))
    return lines


def _gpus(machine: Machine) -> str:
    gpus = shown_gpus(machine)
    if not gpus:
        return "" if isinstance(machine.gpus, Absent) else "no GPU"
    models: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        models.setdefault(_text(gpu.name) or "GPU", []).append(gpu)
    return ", ".join(
        (f"{len(alike)} × " if len(alike) > 1 else "") + name + _size(alike) for name, alike in models.items()
    )


def _size(gpus: Sequence[Gpu]) -> str:
    known = [gpu.memory_total_bytes for gpu in gpus if not isinstance(gpu.memory_total_bytes, Absent)]
    return f" {format_bytes(known[0])}" if known else ""


def _cuda(machine: Machine) -> str:
    cuda = machine.driver.cuda_version
    return "" if isinstance(cuda, Absent) else f" (CUDA {cuda[0]}.{cuda[1]})"


def _text(fact: Fact[T]) -> str:
    return "" if isinstance(fact, Absent) else str(fact)


def _first_known(*facts: Fact[str]) -> str:
    return next((f for f in facts if not isinstance(f, Absent)), "")


def _wrap(text: str, width: int, *, indent: str = "        ", most: int = 2) -> list[str]:
    """`text` over at most so many lines, twice as many on a narrow screen."""
    return fold(text, width, indent=indent, most=most * 2 if width < _SLIM and most > 1 else most)
