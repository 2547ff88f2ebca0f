"""What doctor says: the first screen, and everything with --verbose."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.doctor.model import Finding, Observation, Remedy, Report
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.facts.model import Absent, Fact, Gpu, Machine, T
from gpudoc.knowledge.cause_rows import AREAS, area_of, count_by_area
from gpudoc.patterns import Pattern
from gpudoc.render.frame import MARK, NARROW, PASSED, UNCHECKED, WIDE, Form, Say, box, fold, in_own_language, join_lines
from gpudoc.render.gpus import gpu_facts, gpu_table, holder_table, text_table
from gpudoc.units import format_bytes, format_count

_MOST_LINES, _MOST_HOLDERS = 12, 10
# a value of at least 20 characters is a line of words; below 60 columns a sentence may take twice the lines
_A_LINE, _SLIM = 20, 60
_BETWEEN = " · "
_COUNTED = Pattern(r"\d GPUs? |\bGPU \d")
_ABOUT_HOLDERS = ("oom_other_process", "gpu_memory_orphaned", "compute_mode_exclusive", "gpu_shared")
# less likely findings are shown only with --verbose
WORTH_NAMING = 0.3
# a text's own statement about the state of its trouble, by fact; the first one counts
_OF_ITSELF = {
    "solved": "It says itself that the trouble is over: {}  ({})",
    "finished": "It reports finished work: {}  ({})",
    "denied": "It says that the trouble did not occur: {}  ({})",
}
# kinds of reports that only the words of a text show
_BY_WORDS = {"gpu_report": "text about GPUs", "torch_report": "text about PyTorch"}
OF_CODE = "This is an error in the code, not of the GPU."


def render(report: Report, *, verbose: bool = False, width: int = NARROW, boxed: bool = False) -> str:
    """The report as text: the machine, its GPUs, a line for each area, the root cause; everything when `verbose`."""
    shape = Form(width, boxed)
    report, say = in_own_language(report)
    lines = [*_head(report, width, say), *_tables(report, verbose, width)]
    if report.job is not None:
        from gpudoc.render.ranks import job_lines

        lines += job_lines(report.job, width)
    if verbose:
        for finding in report.findings:
            lines += ["", *_whole(finding, say)]
        lines += ["", *_appendix(report)]
        return join_lines(lines).rstrip() + "\n"
    lines += _areas(report, width)
    if report.findings and not report.findings[0].is_guess and report.verdict in ("broken", "warning"):
        last = _others(report, width, say)
        room = (_MOST_LINES if width >= _SLIM else 2 * _MOST_LINES) - len(_head(report, width, say)) - len(last)
        first = _first(report.findings[0], shape.inner, room, say, named=report.source != "file")
        lines += box(first, shape, step=say("fix: {}", "").rstrip()) + last
    elif report.verdict == "unknown":
        lines += _unknown(report, width, say)
    else:
        lines += _healthy(report, width, say)
    return join_lines(lines)


def _areas(report: Report, width: int) -> list[str]:
    """A line for each area of a machine: its problem, else how much was checked; no lines for a text."""
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
        missing = [s.reason for s in report.skipped if area_of(s.id) == area]
        told = [_counted(passed.get(area, 0), missing)]
        mark = PASSED if passed.get(area, 0) >= len(missing) else UNCHECKED
        if crashed:
            failed = f"{format_count(len(crashed), 'check')} failed: {', '.join(crashed[:3])}"
            mark, told = MARK["warning"], [failed, *told]
        if wrong:
            told = [f"{f.title}{cards_of(f)}" for f in wrong[:1]] + [f"{len(wrong) - 1} more"] * (len(wrong) > 1)
            # a missing thing is neither a fault nor a passed check
            mark = MARK[wrong[0].severity] if wrong[0].severity != "info" else mark
        lines += _wrap(f"  {mark} {area:9}  {'; '.join(filter(None, told))}", width, most=1)
    return ["", *lines, ""] if lines else []


def _counted(passed: int, missing: Sequence[str]) -> str:
    told = [f"{format_count(passed, 'check')} passed"] if passed else []
    if missing:
        told.append(f"{len(missing)} not made: {max(dict.fromkeys(missing), key=missing.count)}")
    return ", ".join(told)


def _tables(report: Report, verbose: bool, width: int) -> list[str]:
    """The table of GPUs if more than their names is known, and of their processes if a finding is about those."""
    if report.source == "fleet" or not report.machine.shown_gpus:
        return []
    gpus = gpu_table(report.machine)
    asked = verbose or any(f.id in _ABOUT_HOLDERS and f.severity != "info" for f in report.findings)
    held = holder_table(report.machine, *([] if verbose else [_MOST_HOLDERS])) if asked else None
    return [line for table in (gpus, held) if table is not None for line in text_table(table, width)]


def headline(report: Report, say: Say = str.format) -> str:
    """The examined GPUs, driver, torch and Python; unknown parts are left out."""
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
    return _BETWEEN.join(p for p in parts if p) or ("" if report.job is not None else _what_was_read(report, say))


def _head(report: Report, width: int, say: Say) -> list[str]:
    """The headline over as many lines as it needs, broken between its parts."""
    lines: list[str] = []
    for part in filter(None, headline(report, say).split(_BETWEEN)):
        if lines and len(lines[-1]) + len(_BETWEEN) + len(part) <= width:
            lines[-1] += _BETWEEN + part
        else:
            lines.append(("  " if lines else "") + part)
    return [line for whole in lines for line in _wrap(whole, width, indent="  ")]


def _what_was_read(report: Report, say: Say) -> str:
    kinds = [_BY_WORDS.get(kind, kind.replace("_", " ")) for kind in report.recognised]
    nothing = "text that is neither a report nor a log that gpudoc knows"
    return say("read: {}", ", ".join(kinds) if kinds else say(nothing))


def _first(finding: Finding, width: int, room: int, say: Say, *, named: bool) -> list[str]:
    """The lines of the root cause; if `named`, the name of a fact stands before its value, else the value alone."""
    title = f"{MARK[finding.severity]} {finding.title}{cards_of(finding)}"
    lines = _wrap(f"{title}  [{finding.id}, {sureness(finding, say)}]", width, indent="  ")
    if is_of_code(finding):
        lines += _wrap(f"  {say(OF_CODE)}", width)
    fixes: list[str] = []
    for remedy in finding.fix[:2]:
        fixes += _step(say("fix: {}", marked(remedy, say)), remedy, width)
    if finding.explains:
        fixes += _wrap("  " + say("explains: {}", "; ".join(finding.explains)), width, most=1)
    fixes = fixes[: room - len(lines) - 1]
    room -= len(lines) + len(fixes)
    for told in [_seen(one, named, say) for one in _distinct(finding.evidence, named)][:3]:
        taken = _wrap(told, width, most=min(room, 2)) if room > 0 else []
        lines += taken
        room -= len(taken)
    return lines + fixes


def _distinct(evidence: Sequence[Observation], named: bool) -> list[Observation]:
    """Each quoted line once, even if it was printed often or shows several facts; the whole line, not a part of it."""
    if named:
        return list({(one.fact, one.value): one for one in reversed(evidence)}.values())[::-1]
    kept: list[Observation] = []
    for one in sorted(evidence, key=lambda one: -len(one.value)):
        if not any(
            one.value == other.value or (len(one.value) >= _A_LINE and one.value in other.value) for other in kept
        ):
            kept.append(one)
    return sorted(kept, key=evidence.index)


def is_of_code(finding: Finding) -> bool:
    """Whether the fault is in the program, not in the machine."""
    return finding.id in CATALOGUE and CATALOGUE[finding.id].family == "code"


def _seen(one: Observation, named: bool, say: Say) -> str:
    what = f"{one.fact}: {one.value}" if named else one.value
    return "  " + say("seen: {}", f"{what}  ({one.origin})" if one.origin else what)


def cards_of(finding: Finding) -> str:
    """': GPU 3', ': GPU 0 to 2': the GPUs that a finding is about; '' if its title already names or counts them."""
    numbers = sorted(card.index for card in finding.cards if not isinstance(card.index, Absent))
    if not numbers or _COUNTED.search(finding.title):
        return ""
    whole = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
    return f": GPU {f'{numbers[0]} to {numbers[-1]}' if whole else ', '.join(map(str, numbers))}"


def _others(report: Report, width: int, say: Say) -> list[str]:
    rest = [f for f in report.findings[1:] if f.confidence >= WORTH_NAMING]
    lines = []
    if rest and report.source != "machine":
        fleet = report.source == "fleet"
        named = "; ".join(f.title if fleet else f"{f.id} ({f.confidence:.0%})" for f in rest[:3])
        named = say("{} and {} more", named, len(rest) - 3) if len(rest) > 3 else named
        lines += _wrap(say("also: {}", named), width, indent="  ")
    explain = "gpudoc doctor --verbose, or gpudoc doctor --explain {}"
    command = "gpudoc doctor --verbose" if report.source == "fleet" else say(explain, report.findings[0].id)
    return [*lines, *_wrap(say("next: {}", command), width, indent="  ")]


def _unknown(report: Report, width: int, say: Say) -> list[str]:
    """The lines that say that no cause is known: what was seen and understood, and the one thing to collect next."""
    first = report.unexplained[0] if report.unexplained else None
    if first is not None and first.fact in ("documentation", "source code", "configuration"):
        lines = _wrap(f"? This is {first.fact}, not what a machine said: {first.value}.", width, indent="  ")
    elif first is None and not report.recognised:
        lines = ["? " + say("I don't know: nothing in this text is about a GPU, a driver or a training run.")]
    else:
        lines = ["? " + say("I don't know the cause: nothing in this text proves one.")]
        for seen in report.unexplained[:3]:
            lines += _wrap(_seen(seen, False, say), width)
        for state in report.understood[:3]:
            lines += _wrap("  " + say("read: {}", state.value), width)
    lines += _guesses(report, width, say)
    for fact in report.deciding_facts[:1]:
        lines += _wrap("  " + say("collect next: {}", fact), width)
    return lines


def _guesses(report: Report, width: int, say: Say) -> list[str]:
    """The causes that words alone suggest, each with its likelihood; the first one also with its lines and a step."""
    guesses = [f for f in report.findings if f.is_guess and f.confidence * 2 >= report.findings[0].confidence]
    lines: list[str] = []
    for place, guess in enumerate(guesses):
        named = f"{guess.title}  [{guess.id}, {sureness(guess, say)}]"
        lines += _wrap("  " + say("or: {}" if place else "by its words perhaps: {}", named), width)
        if place == 0:
            for seen in guess.evidence[:2] if not report.unexplained else ():
                lines += _wrap(f"  {_seen(seen, False, say)}", width)
            for remedy in guess.fix[:1]:
                lines += _step(say("to try: {}", marked(remedy, say)), remedy, width, 4)
    return lines


def sureness(finding: Finding, say: Say = str.format) -> str:
    """'84% sure' for a found cause, 'a guess, 40% likely' for a cause that only words make likely."""
    return say("a guess, {:.0%} likely" if finding.is_guess else "{:.0%} sure", finding.confidence)


def marked(remedy: Remedy, say: Say = str.format) -> str:
    """The text of the step, after the word 'disruptive' if the step ends running work."""
    return say("disruptive: {}", remedy.say) if remedy.disruptive else remedy.say


def _healthy(report: Report, width: int, say: Say) -> list[str]:
    said = {o.fact: o for o in report.understood}
    if "question" in said:
        return [*_answers(report, width, say), *_wrap(_next(report, say), width, indent="  ")]
    lines = []
    over = said.get("solved")
    for fact, sentence in _OF_ITSELF.items():
        if (told := said.get(fact)) is not None:
            lines += _wrap(say(sentence, told.value, told.origin), width, indent="  ")
            break
    states = [o.value for o in report.understood if o.fact not in _OF_ITSELF]
    if states:
        lines += _wrap(say("{}: looks healthy.", "; ".join(states)), width, indent="  ")
    lines += _wrap(_no_problem(report, say), width, indent="  ")
    in_areas = [f for f in report.findings if f.confidence >= WORTH_NAMING] if report.source == "machine" else []
    for finding in report.findings[:4]:
        if finding not in in_areas:
            was = finding.title if over is None else say("it was: {}", finding.title)
            lines += _wrap(f"  {MARK[finding.severity]} {was}", width)
            explained = finding.fix[:1] if report.source == "file" and over is None else ()
            lines += [line for step in explained for line in _step(step.say, step, width, 4)]
    return [*lines, *_wrap(_next(report, say), width, indent="  ")]


def _answers(report: Report, width: int, say: Say) -> list[str]:
    if not report.answers:
        none = "This is a question, and gpudoc's tables hold no answer to it. Nothing in it is wrong."
        return _wrap(say(none), width)
    lines = [say("This is a question; nothing in it is wrong.")]
    for answer in report.answers:
        lines += _wrap(f"  {answer.say}", width, indent="  ")
        lines += [f"    $ {part}" for part in answer.run.splitlines()]
    return lines


def _no_problem(report: Report, say: Say) -> str:
    """How many checks passed, how many could not be made, and for a text also the parts that it does not mention."""
    count = len(report.passed)
    if report.source != "file":
        absent = next((f"{f.title}. " for f in report.findings if f.id == "no_gpu_on_machine"), "")
        noted = [f for f in report.findings if f.id != "no_gpu_on_machine" and f.confidence >= WORTH_NAMING]
        # a finding that is only noted in its area is over, or is not a fault
        none, checks = "Nothing is wrong now" if noted else "No problem found", format_count(count, "check")
        left = f" that could be made; {len(report.skipped)} could not be made (--verbose says why)"
        return f"{absent}{none} in the {checks}{left}." if report.skipped else f"{absent}{none}: {checks} passed."
    silent = _silent(report.machine, say)
    if not report.passed:
        nothing = "No error recognised in this text; it says nothing of {}."
        return say(nothing, silent) if silent else say("No error recognised in this text.")
    checked = "No problem found in what this text says: {} checks passed ({})"
    if silent:
        return say(checked + "; it says nothing of {}.", count, by_area(report.passed), silent)
    return say(checked + ".", count, by_area(report.passed))


def _driver(machine: Machine) -> str:
    driver = machine.driver
    versions = (driver.module_version, driver.nvml_driver_version, driver.library_version)
    return next((f for f in versions if not isinstance(f, Absent)), "")


def _silent(machine: Machine, say: Say) -> str:
    """The names of driver, GPU and PyTorch that a text does not mention, joined by 'or'."""
    known = {"driver": _driver(machine), "GPU": machine.shown_gpus, "PyTorch": _text(machine.torch.version)}
    silent = [say(name) for name, value in known.items() if not value]
    return say("{} or {}", ", ".join(silent[:-1]), silent[-1]) if len(silent) > 1 else "".join(silent)


def _next(report: Report, say: Say) -> str:
    if report.source == "file":
        return say("next: {}", say("gpudoc doctor (this machine) · gpudoc doctor --pid PID (a running job)"))
    if (system := report.machine.host.system) in ("Windows", "Darwin"):
        linuxes = report.machine.host.wsl_distributions
        names = "wsl --install" if isinstance(linuxes, Absent) or not linuxes else ", ".join(linuxes)
        rest = f" · what Windows cannot be asked, inside WSL ({names}): gpudoc doctor" if system == "Windows" else ""
        return f"next: gpudoc doctor train.log{rest}"
    return "next: gpudoc doctor train.log · gpudoc doctor --pid PID · gpudoc bench"


def by_area(ids: Sequence[str]) -> str:
    """'GPU 12, driver 8': how many of the causes belong to each area."""
    return ", ".join(f"{area} {count}" for area, count in count_by_area(ids).items())


def _whole(finding: Finding, say: Say) -> list[str]:
    tag = f"[{finding.id}, {say(finding.severity)}, {sureness(finding, say)}]"
    lines = [f"{MARK[finding.severity]} {finding.title}  {tag}", "  " + say("why: {}", finding.why)]
    lines += ["  " + say("seen: {}", f"{o.fact}: {o.value}  ({o.origin})") for o in finding.evidence]
    lines += ["  " + say("explains: {}", title) for title in finding.explains]
    for remedy in finding.fix:
        step = marked(remedy, say)
        lines.append("  " + say("fix: {}", say("{}  (needs root)", step) if remedy.needs_root else step))
        lines += [f"    $ {part}" for part in remedy.run.splitlines()]
    return [*lines, "  " + say("more: {}", finding.url)] if finding.url else lines


def _appendix(report: Report) -> list[str]:
    lines = [f"verdict: {report.verdict}"]
    lines += [f"understood: {o.value}{f'  ({o.origin})' if o.origin else ''}" for o in report.understood]
    lines += [f"answer: {answer.say} {answer.run}".rstrip() for answer in report.answers]
    lines += [f"unexplained: {o.value}  ({o.origin})" for o in report.unexplained]
    lines += [f"collect next: {fact}" for fact in report.deciding_facts]
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
    gpus = machine.shown_gpus
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


def _step(told: str, remedy: Remedy, width: int, indent: int = 2) -> list[str]:
    place = " " * indent
    return [*_wrap(place + told, width), *(f"{place}  $ {part}" for part in remedy.run.splitlines()[:2])]


def _wrap(text: str, width: int, *, indent: str = "        ", most: int = 2) -> list[str]:
    """`text` folded to at most `most` lines, or twice as many on a narrow screen."""
    return fold(text, width, indent=indent, most=most * 2 if width < _SLIM and most > 1 else most)
