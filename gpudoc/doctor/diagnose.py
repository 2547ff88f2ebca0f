"""The judgement: asks every finder, merges findings of one cause, and puts the root before its consequences."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gpudoc.doctor import complaint, likelihood
from gpudoc.doctor.causes.exceptions import is_of_code, origins_of, with_code, with_place, without_warned
from gpudoc.doctor.complaint import without_denied
from gpudoc.doctor.likelihood import ASKS, ASKS_WHY, COMPLAINS
from gpudoc.doctor.model import (
    RANK,
    Card,
    Cause,
    Crashed,
    Evidence,
    Finder,
    Finding,
    Observation,
    Remedy,
    Report,
    Setting,
    Skip,
    Skipped,
    Verdict,
)
from gpudoc.doctor.questions import answers_to
from gpudoc.doctor.registry import CATALOGUE, fill, finders_for, not_asked, ruled_out, too_small
from gpudoc.doctor.remedies import advised_in, first_steps
from gpudoc.doctor.setting import condition, describe
from gpudoc.doctor.symptoms import Unexplained, complained, is_of_no_matter, look, no_patient, unavailable
from gpudoc.facts.model import Absent, Machine, fact_at
from gpudoc.facts.readers.model import Reading

_MOST_EVIDENCE = 6
# a value of at least 20 characters is a line of words; shorter values, such as counts, may be equal by chance
_A_LINE = 20
# a finding below this is only a candidate, too unsure to take other findings as its consequences
_SURE_ENOUGH = 0.5
# a finding of at least 0.6 ranks above guesses from words; no guesses are made if one has at least 0.8
_STANDS, _PROVES = 0.6, 0.8
# a finding stands for itself if it is much surer than its possible root
_SHARE_OF_CHILD = 0.7


def diagnose(
    evidence: Evidence,
    *,
    ignore: Iterable[str] = (),
    finders: Sequence[Finder] | None = None,
    catalogue: Mapping[str, Cause] | None = None,
) -> Report:
    """Judge `evidence` by every finder (or those given): a Report whose first finding is the likeliest root cause."""
    catalogue = CATALOGUE if catalogue is None else catalogue
    began = time.perf_counter()
    as_written = evidence.reading
    evidence, denial = without_denied(evidence)
    unwanted = set(ignore)
    finders = finders_for(evidence) if finders is None else finders
    asked = [f for f in finders if f.id not in unwanted and _applies(f, evidence)]
    found, passed, skipped, crashed = _ask(asked, evidence)
    # one finder reads the signatures of many causes, so its findings may be unwanted too
    found = [finding for finding in found if finding.id not in unwanted]
    ordered = with_code(_order(_merge(found), catalogue), catalogue, evidence.reading)
    small: set[str] = set()
    if evidence.source == "file" and evidence.reading is not None:
        small = too_small(evidence.reading.text, catalogue)
        # a finding from words alone does not count against figures
        ordered = [f for f in ordered if f.id not in small or f.evidence[0].fact != "text"]
        ordered = [with_place(without_warned(f, evidence.reading.text), evidence.reading) for f in ordered]
        ordered.sort(key=lambda f: RANK[f.severity])
    crashed += _dead_probes(evidence, ordered)
    if evidence.source == "file" and (about_nothing := no_patient(evidence, ordered)) is not None:
        return _about_nothing(evidence, about_nothing, time.perf_counter() - began)
    understood: tuple[Observation, ...] = ()
    answers: tuple[Remedy, ...] = ()
    rest = look(evidence, ordered, crashed)
    if evidence.source == "file" and evidence.reading is not None:
        said = replace(evidence, reading=as_written)
        unsettled = {*(f.id for f in ordered), *(s.id for s in skipped), *(c.id for c in crashed), *unwanted}
        # words do not count against facts either
        passed = (*ruled_out(evidence.machine, unsettled), *sorted(small - unsettled))
        ordered, rest, understood = _with_words(said, denial, ordered, catalogue, rest, {*unwanted, *small, *passed})
        questions = " ".join(o.value for o in understood if o.fact == "question")
        answers = answers_to(evidence.reading, questions) if questions else ()
    ill = _distinct(c for f in found if f.severity != "info" for c in f.cards)
    findings = _complete(ordered, replace(describe(evidence), ill=ill), evidence, catalogue)
    return Report(
        source=evidence.source,
        verdict=_verdict(findings, rest),
        findings=findings,
        passed=passed,
        skipped=skipped,
        crashed=crashed,
        machine=evidence.machine,
        seconds={"diagnose": time.perf_counter() - began, **evidence.machine.probe_seconds},
        unexplained=rest.observations,
        deciding_facts=rest.deciding_facts,
        understood=understood,
        answers=answers,
        recognised=evidence.reading.recognised if evidence.reading is not None else (),
    )


def _with_words(
    evidence: Evidence,
    denial: Observation | None,
    found: list[Finding],
    catalogue: Mapping[str, Cause],
    rest: Unexplained,
    unwanted: Collection[str],
) -> tuple[list[Finding], Unexplained, tuple[Observation, ...]]:
    """Adapt the result to the person's words: past trouble and plain questions are not trouble, a complaint is.

    The third value returned holds the text's statements that things are in order.
    """
    reading = evidence.reading
    assert reading is not None
    states = condition(reading)
    over = complaint.end_of_trouble(reading.text)
    if over is not None and not _shown_behind(over, found, reading):
        return [replace(finding, severity="info") for finding in found], Unexplained(), (over, *states)
    if found and not rest.wrong and all(map(is_of_no_matter, found)) and not complaint.suffers(reading.text):
        return found, rest, states
    if not _is_wrong(found) and not rest.observations and (calm := _calm(reading, denial, found)) is not None:
        unseen = unavailable(evidence)
        return ([], unseen, (calm, *states)) if not unseen.wrong else (found, unseen, states)
    code = [f for f in found if is_of_code(f, catalogue)]
    if code:
        # the exception says what is wrong, so nothing is left to guess
        known = origins_of(code, reading)
        return found, rest if any(o.origin not in known for o in rest.observations) else Unexplained(), states
    if not rest.wrong and found and not _is_wrong(found) and not all(map(is_of_no_matter, found)):
        return found, rest, states
    found, rest = _with_guesses(reading, found, catalogue, rest, unwanted, denial)
    return found, rest, states


def _with_guesses(
    reading: Reading,
    found: list[Finding],
    catalogue: Mapping[str, Cause],
    rest: Unexplained,
    unwanted: Collection[str],
    denial: Observation | None,
) -> tuple[list[Finding], Unexplained]:
    """The findings, and below the printed ones the causes that a complaint's words make likely.

    Order, severity and verdict follow from the confidence of the finders; the shown number is how often it is right.
    """
    proved = any(f.severity != "info" and f.confidence >= _PROVES for f in found)
    explained = _is_wrong(found) and complaint.is_failure(reading.text)
    likely = likelihood.likely_causes(reading, is_proved=proved or explained)
    weights = {f.id: likelihood.weight(f, likely) for f in found}
    shown = likelihood.calibrated(found, likely)
    ranked = likelihood.cap_confidence(sorted(shown, key=lambda f: (RANK[f.severity], -weights[f.id])))
    if proved or explained:
        return ranked, rest
    hidden = next((o for o in rest.observations if o.fact == "torch.is_available"), None)
    said = complaint.complaint_of(reading.text) or hidden
    if said is None and (denial is not None or not likelihood.tells_of_trouble(reading, likely)):
        is_silent = denial is not None or ranked or rest.observations or not likelihood.sounds_ill(reading)
        return ranked, rest if is_silent else complained(complaint.first_words(reading.text), reading.text, ())
    guesses = likelihood.guess(reading.text, likely, found, catalogue, unwanted)
    if guesses and ranked and likelihood.is_doubted(ranked[0]) and guesses[0].confidence >= _PROVES:
        # many causes print this message, and the words are far surer of another cause: neither is proved
        both = [*guesses, *(replace(one, severity="info") for one in ranked)]
        return both, rest if rest.observations else complained(said or ranked[0].evidence[0], reading.text, both)
    if said is None:
        # without an explicit complaint, guesses stand below the findings
        known, is_told = [*ranked, *guesses], bool(ranked or rest.observations or not guesses)
        return known, rest if is_told else complained(guesses[0].evidence[0], reading.text, known)
    # a candidate from a row ranks above guesses from words only if its shown confidence is higher
    best = guesses[0].confidence if guesses else 0.0
    stands = not guesses or any(
        one.confidence >= _STANDS or max(weights[one.id], shown_one.confidence) >= best
        for one, shown_one in zip(found, shown, strict=True)
    )
    doubted = not any(one.severity != "info" and not likelihood.is_doubted(one) for one in ranked)
    told = [replace(one, severity="info") for one in ranked] if doubted or not stands else ranked
    both = [*told, *guesses] if stands else [*guesses, *told]
    return both, rest if rest.observations or _is_wrong(both[:1]) else complained(said, reading.text, both)


def _calm(reading: Reading, denial: Observation | None, found: Sequence[Finding]) -> Observation | None:
    """The line that asks a question, reports finished work or denies trouble; None if other words report trouble."""
    text = reading.text
    calm = (
        complaint.plain_question(text) or complaint.finished_work(text) or (denial if complaint.is_calm(text) else None)
    )
    if calm is not None:
        if denial is None and likelihood.sounds_ill(reading):
            return None
        is_excused = denial is not None or complaint.complaint_of(text) is not None
        likely = likelihood.likely_causes(reading)
        return calm if is_excused or not likelihood.tells_of_trouble(reading, likely, ASKS) else None
    asked, least = complaint.plain_question(text, may_ask_why=True), ASKS_WHY
    if asked is None:
        asked, least = complaint.question(text), COMPLAINS
    if asked is None or found:
        return None
    return asked if likelihood.is_at_ease(reading, likelihood.likely_causes(reading), least) else None


def _shown_behind(over: Observation, found: Sequence[Finding], reading: Reading) -> bool:
    """Whether a finding of trouble quotes a line after the one that says that the trouble is over."""
    place = {line.origin: number for number, line in enumerate(reading.text.lines)}
    seen = [place.get(o.origin, -1) for f in found if f.severity != "info" for o in f.evidence]
    return max(seen, default=-1) > place.get(over.origin, len(place))


def _about_nothing(evidence: Evidence, rest: Unexplained, seconds: float) -> Report:
    """The report of a text that is not about a machine, so the faults in it belong to nobody."""
    return Report(
        source=evidence.source,
        verdict="unknown",
        findings=(),
        seconds={"diagnose": seconds},
        unexplained=rest.observations,
        deciding_facts=rest.deciding_facts,
        recognised=tuple(observation.fact for observation in rest.observations),
    )


def _dead_probes(evidence: Evidence, findings: Sequence[Finding]) -> tuple[Crashed, ...]:
    """The driver's probes that ended half way if no finding says why: the facts they left out may be faults."""
    if evidence.source != "machine" or any(f.severity == "broken" or f.id == "driver_slow" for f in findings):
        return ()
    failures = evidence.machine.probe_failures
    return tuple(Crashed(f"probe {name}", failures[name]) for name in ("nvml", "cuda") if failures.get(name))


def _is_wrong(findings: Sequence[Finding]) -> bool:
    return any(f.severity != "info" for f in findings)


def _applies(finder: Finder, evidence: Evidence) -> bool:
    match finder.reads:
        case "machine":
            return evidence.source in ("machine", "process")
        case "text":
            return evidence.reading is not None
        case "watch":
            return evidence.watch is not None
        case "trace":
            return evidence.timeline is not None


def _ask(
    finders: Sequence[Finder], evidence: Evidence
) -> tuple[list[Finding], tuple[str, ...], tuple[Skipped, ...], tuple[Crashed, ...]]:
    found: list[Finding] = []
    passed: dict[str, None] = {}
    skipped: dict[str, Skipped] = {}
    unchecked: dict[str, Skipped] = {}
    crashed: dict[str, Crashed] = {}
    partly: set[str] = set()
    for finder in finders:
        missing = absent_reason(evidence.machine, finder.needs)
        try:
            answers = [Skip(missing)] if missing is not None else list(finder.find(evidence))
        except Exception as error:
            crashed.setdefault(finder.id, Crashed(finder.id, f"{type(error).__name__}: {error}"))
            continue
        skips = [a for a in answers if isinstance(a, Skip)]
        findings = [a for a in answers if isinstance(a, Finding)]
        found += findings
        if skips:
            because = "; ".join(dict.fromkeys(skip.because for skip in skips))
            # a fact missing from a machine may be the fault; in a text, another reader may have read everything
            place = unchecked if finder.reads == "machine" else skipped
            before = place[finder.id].because if finder.id in place else because
            place[finder.id] = Skipped(finder.id, before if because in before else f"{before}; {because}")
            # some GPUs have the fault and others could not be examined: the report says both
            partly |= {finding.id for finding in findings}
        elif not findings and finder.reads != "text":
            # a text that does not mention a cause does not rule it out
            passed.setdefault(finder.id)
    unchecked |= {s.id: s for s in not_asked(evidence.machine, passed.keys() - unchecked.keys())}
    named = {f.id for f in found} - partly
    done = named | set(crashed)
    clean = tuple(i for i in passed if i not in done and i not in unchecked)
    left_out = {i: s for i, s in skipped.items() if i not in passed} | unchecked
    return found, clean, tuple(s for i, s in left_out.items() if i not in done), tuple(crashed.values())


def absent_reason(machine: Machine, needs: Iterable[str]) -> str | None:
    """Why the first of these facts (dotted paths) is missing: 'gpus: no permission'; None when all are there."""
    for path in needs:
        value = fact_at(machine, path)
        if isinstance(value, Absent):
            return f"{path}: {value.reason}"
    return None


def _merge(found: list[Finding]) -> list[Finding]:
    groups: dict[str, list[Finding]] = {}
    for finding in found:
        groups.setdefault(finding.id, []).append(finding)
    return [_merge_one(group) for group in groups.values()]


def _merge_one(group: list[Finding]) -> Finding:
    # independent signs of one cause: the finding is wrong only if every sign misleads; never above 0.99
    lead = max(group, key=lambda f: (-RANK[f.severity], f.confidence))
    doubt = 1.0
    for finding in _independent([f for f in group if f.severity == lead.severity]):
        doubt *= 1 - finding.confidence
    evidence = list(dict.fromkeys(o for f in (lead, *group) for o in f.evidence))[:_MOST_EVIDENCE]
    explains = tuple(dict.fromkeys(e for f in group for e in f.explains))
    # the advice touches only these cards, not a card with a lesser fault or another number of the kernel log
    alike = [f for f in group if (f.severity, f.title) == (lead.severity, lead.title)]
    cards = _distinct(c for f in alike for c in f.cards)
    advise = next((f.advise for f in alike if f.advise is not None), None)
    confidence = lead.confidence if len(group) == 1 else min(max(1 - doubt, lead.confidence), 0.99)
    confidence = round(confidence, 3)
    return replace(lead, confidence=confidence, evidence=tuple(evidence), cards=cards, advise=advise, explains=explains)


def _independent(group: Sequence[Finding]) -> list[Finding]:
    """The surest of the findings that rest on one line: the same words, read twice, are one sign."""
    kept: list[Finding] = []
    for finding in sorted(group, key=lambda f: -f.confidence):
        if not any(_same_line(finding.evidence[:1], other.evidence[:1]) for other in kept):
            kept.append(finding)
    return kept


def _same_line(one: Sequence[Observation], other: Sequence[Observation]) -> bool:
    """Whether both quote one line, say one from the kernel log and one from a text, with or without its date."""
    if not one or not other:
        return False
    short, long = sorted((one[0].value, other[0].value), key=len)
    return one[0] == other[0] or (len(short) >= _A_LINE and short in long)


def _distinct(cards: Iterable[Card]) -> tuple[Card, ...]:
    """Each card once, even if two findings know it by different names."""
    kept: list[Card] = []
    for card in cards:
        if not any(_same(card, other) for other in kept):
            kept.append(card)
    return tuple(kept)


def _same(one: Card, other: Card) -> bool:
    pairs = ((one.index, other.index), (one.pci_address, other.pci_address), (one.uuid, other.uuid))
    return any(a == b for a, b in pairs if not isinstance(a, Absent) and not isinstance(b, Absent))


def _order(findings: list[Finding], catalogue: Mapping[str, Cause]) -> list[Finding]:
    ranked = sorted(findings, key=lambda f: (RANK[f.severity], -f.confidence))
    place = {f.id: i for i, f in enumerate(ranked)}
    under: dict[str, list[str]] = {}
    gone: set[str] = set()
    for root in ranked:
        if root.id in gone or root.confidence < _SURE_ENOUGH:
            continue
        claims = (*catalogue[root.id].explains, *root.explains) if root.id in catalogue else root.explains
        for claimed in claims:
            child = next((f for f in ranked if f.id == claimed and f.id != root.id and f.id not in gone), None)
            if child is None or root.confidence < _SHARE_OF_CHILD * child.confidence:
                continue
            if RANK[root.severity] <= RANK[child.severity]:
                gone.add(child.id)
                under.setdefault(root.id, []).append(child.id)
    kept = [f for f in ranked if f.id not in gone]
    # a root takes the place of its most urgent consequence
    kept.sort(key=lambda f: (RANK[f.severity], min([place[f.id], *(place[c] for c in under.get(f.id, ()))])))
    titles = {f.id: f.title or (catalogue[f.id].title if f.id in catalogue else f.id) for f in ranked}
    return [replace(f, explains=tuple(titles[c] for c in under.get(f.id, ()))) for f in kept]


def _complete(
    findings: list[Finding], setting: Setting, evidence: Evidence, catalogue: Mapping[str, Cause]
) -> tuple[Finding, ...]:
    advices = advised_in(evidence.reading.text) if evidence.reading is not None else ()
    done = []
    for finding in findings:
        finding = fill(finding, catalogue, setting)
        said = first_steps(finding, advices) if finding.severity != "info" else ()
        known = {step.run for step in finding.fix}
        done.append(replace(finding, fix=(*(step for step in said if step.run not in known), *finding.fix)))
    return tuple(done)


def _verdict(findings: Sequence[Finding], rest: Unexplained) -> Verdict:
    severities = {f.severity for f in findings}
    if "broken" in severities:
        return "broken"
    if rest.wrong:
        return "unknown"
    return "warning" if "warning" in severities else "healthy"
