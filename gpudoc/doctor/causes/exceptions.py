"""Find a program's fault from a Python exception: which one of a chain counts, at which line, and what it means.

If there is also a finding about the machine, decides which of the two explains the other.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpudoc.doctor.causes.sign import Listed
from gpudoc.doctor.model import RANK, Cause, Evidence, Finder, Finding, Observation, Severity, Skip, observe
from gpudoc.doctor.signatures import Matcher
from gpudoc.facts.readers.model import CleanText, Line, Reading
from gpudoc.facts.readers.python_errors import TITLE_LINES, CodeFrame, ErrorChain, Owner, PythonError
from gpudoc.facts.readers.words import Written
from gpudoc.knowledge.signature_rows import CODE, OwnRows
from gpudoc.patterns import Pattern

UNKNOWN = "error_in_code"
# no row knows the exception: the fault is in the program, and nothing more is sure
_UNKNOWN_CONFIDENCE, _SURVIVED = 0.65, 0.4
# exceptions that a program often expects and handles: if the handler fails, its failure counts instead
_EXPECTED = (
    "ImportError",
    "ModuleNotFoundError",
    "KeyError",
    "AttributeError",
    "FileNotFoundError",
    "IndexError",
    "Empty",
)
_OF: Mapping[Owner, str] = {
    "user": "your code",
    "library": "a library's code",
    "torch": "torch's code",
    "standard": "Python's code",
}
_PASSED_ON = Listed("passed-on-error")
_OF_DEVICE = Listed("error-of-device")
_TRAINS = Listed("step-of-training")
# one call with one name: 'return self.b(h)'
_CALL = Pattern(r"(?:return |\w[\w, ]{0,60} = )?(?:self\.)?([\w.]{1,60})\((\w{1,40})\)$")
# 'line 8 in train.py', 'train.py, line 8'
_SAID_PLACE = Pattern(
    r"(?i)\bline (\d{1,6}),? (?:in|of) [`'\"]?([\w./\\-]{1,200}\.py)\b|"
    r"([\w./\\-]{1,200}\.py)[`'\"]?,? (?:at |on |in )?line (\d{1,6})\b"
)
_MOST_BESIDE, _FEW_LINES, _PRINTED_BEFORE, _FEWEST_STEPS = 200, 25, 4, 3
# the marks of a warning in a log: '[W socket.cpp:663]', 'WARNING:root:', 'UserWarning:'
_WARNS = Pattern(r"\[W(?:\d{4} [^\]]{1,40}| [\w.]{1,40}:\d{1,6})|\bWARN(?:ING)?\b|\b[A-Z]\w{2,30}Warning:")
_ASSERTS = Pattern(r"(?i)\bassert\w*\b")
_LONGEST_SOURCE, _LONGEST_MESSAGE = 60, 110


def _find(evidence: Evidence) -> Iterator[Finding | Skip]:
    reading = evidence.reading
    assert reading is not None
    if evidence.source != "file":
        # other finders judge the output of a live machine's torch
        return
    chain = telling_chain(reading)
    if chain is None:
        # people paste a message without the exception's name; only the first lines of a long log without 'error' count
        is_short = len(reading.text.lines) <= _FEW_LINES or "error" in reading.text.folded
        text = reading.text if is_short else _headline(reading.text)
        found = _matching(evidence, text) if not reading.failures else []
        yield from (_placed(one, reading.text) for one in found[:1])
        return
    best: Finding | None = None
    candidates = _candidates(chain)
    for error in candidates:
        found = _matching(evidence, _text_of(error), chain)
        if found and (best is None or found[0].confidence > best.confidence):
            best, root = found[0], error
    if best is None:
        root = next((one for one in candidates if one.kind), candidates[0])
        if not all(one.message for one in candidates):
            # the paste ends before the message, but its title may contain the message
            best = next(iter(_matching(evidence, _headline(reading.text), chain)), None)
    if best is None:
        if not root.kind or _OF_DEVICE.search(_written(root)) is not None:
            return
        best = Finding(id=UNKNOWN, confidence=_UNKNOWN_CONFIDENCE, evidence=())
    frame = place_of(chain, root) or _said_place(reading.text)
    best = replace(best, title=_title(best, root, frame), evidence=tuple(_evidence(root, frame)))
    if _is_survived(reading, chain):
        # a line without a frame may be the message of a retry
        severity: Severity = "warning" if frame is not None else "info"
        best = replace(best, severity=severity, confidence=min(best.confidence, _SURVIVED))
    yield best


def _headline(text: CleanText) -> CleanText:
    return CleanText(text.lines[:TITLE_LINES])


def telling_chain(reading: Reading) -> ErrorChain | None:
    """The failure that counts: the first that ended something and is not the echo of another; None if there is none."""
    chains = [chain for chain in reading.failures if not chain.is_stop]
    if not chains:
        return None
    return min(chains, key=lambda chain: (_is_survived(reading, chain), _is_echo(chain)))


def _is_echo(chain: ErrorChain) -> bool:
    """Whether the chain only reports that another process or thread failed."""
    root = _candidates(chain)[0]
    return not root.kind or _PASSED_ON.search(_written(root)) is not None


def _is_survived(reading: Reading, chain: ErrorChain) -> bool:
    # another rank may still write a last line next to a traceback
    least = 2 if any(error.frames for error in chain.errors) else 1
    return _steps_beyond(reading.text.lines, chain.first, chain.last) >= least


def _steps_beyond(lines: Sequence[Line], first: int, last: int) -> int:
    """How many new training steps follow the lines; a step printed before, as a progress bar repeats it, is not new."""
    before = _steps(line.text for line in lines[max(0, first - _MOST_BESIDE) : first])
    return len(_steps(line.text for line in lines[last + 1 :][:_MOST_BESIDE]) - before)


def without_warned(finding: Finding, text: CleanText) -> Finding:
    """The finding, as a mere note if it rests only on a log's warnings and the training goes on below them."""
    quoted = {seen.origin for seen in finding.evidence}
    places = [place for place, line in enumerate(text.lines) if line.origin in quoted]
    if finding.severity != "broken" or not places or len({text.lines[p].origin for p in places}) < len(quoted):
        return finding
    warned = all(any(_WARNS.search(line.text) for line in text.lines[max(0, p - 1) : p + 1]) for p in places)
    goes_on = warned and _steps_beyond(text.lines, places[0], places[-1]) >= _FEWEST_STEPS
    return replace(finding, severity="info") if goes_on else finding


def _steps(lines: Iterable[str]) -> set[str]:
    """The numbers in each line of a training, without the times after a progress bar."""
    steps = (line.partition("[")[0] or line for line in lines if _TRAINS.search(Written(line)) is not None)
    return {" ".join(Pattern(r"\d+").findall(step)) for step in steps}


def _candidates(chain: ErrorChain) -> list[PythonError]:
    """The exceptions of a chain: first the one that began it, then the others from its first to its last."""
    errors = list(chain.errors)
    begin = next((n for n, error in enumerate(errors) if error.link == "original"), 0)
    end = next((n for n in range(begin + 1, len(errors)) if errors[n].link == "original"), len(errors))
    root = begin
    for place in range(begin + 1, end):
        if errors[place].link == "handling" and _counts(errors[root], errors[place]):
            root = place
    return [errors[root], *(error for n, error in enumerate(errors[begin:end], begin) if n != root)]


def _counts(handled: PythonError, raised: PythonError) -> bool:
    """Whether the exception raised while another was handled is the failure, and not the handled one."""
    last = raised.frames[-1] if raised.frames else None
    on_purpose = last is not None and last.source.startswith("raise")
    if on_purpose and last is not None:
        # a library restates its own error in its own words
        return last.owner != "user" and _innermost(handled.frames) is None
    return handled.name in _EXPECTED


def place_of(chain: ErrorChain, root: PythonError) -> CodeFrame | None:
    """The frame to look at: the user's innermost, else the innermost of all; None if there are no frames."""
    at = chain.errors.index(root)
    near = [root, *chain.errors[at + 1 :], *reversed(chain.errors[:at])]
    for error in near:
        frame = _innermost(error.forward) or _innermost(error.frames)
        if frame is not None:
            return frame
    return next((error.frames[-1] for error in near if error.frames), None)


def with_place(finding: Finding, reading: Reading) -> Finding:
    """The finding, with the user's line as evidence if it quotes an exception that has one, or the assertion above it.

    A kernel's assertion is printed before the exception that it causes.
    """
    quoted = {seen.origin for seen in finding.evidence[:1]}
    for chain in reading.failures:
        before = reading.text.lines[max(0, chain.first - _PRINTED_BEFORE) : chain.first]
        asserted = [line for line in before if _ASSERTS.search(line.text)]
        lines = (*asserted, *reading.text.lines[chain.first : chain.last + 1])
        if quoted.isdisjoint(line.origin for line in lines):
            continue
        frame = place_of(chain, _candidates(chain)[0])
        if frame is None or frame.owner != "user" or any(seen.origin == frame.origin for seen in finding.evidence):
            return finding
        return replace(finding, evidence=(*finding.evidence[:1], _place(frame), *finding.evidence[1:]))
    return finding


def _innermost(frames: Sequence[CodeFrame]) -> CodeFrame | None:
    """The user's innermost frame; a frame in a file counts before one in a text passed to `eval`."""
    own = [frame for frame in frames if frame.owner == "user"]
    files = [frame for frame in own if not frame.file.startswith("<string")]
    return (files or own)[-1] if own else None


def _placed(finding: Finding, text: CleanText) -> Finding:
    """The finding of a message alone, with the line of code that a sentence in the text names."""
    frame = _said_place(text)
    meaning = _filled(finding.title, None)
    if frame is None:
        return replace(finding, title=_capital(meaning))
    title = f"{_at(frame)}: {meaning}" if meaning else ""
    return replace(finding, title=title, evidence=(_place(frame), *finding.evidence))


def _said_place(text: CleanText) -> CodeFrame | None:
    """The line of code that a short text names outside of a traceback."""
    said = text.find(_SAID_PLACE) if len(text.lines) <= _FEW_LINES else None
    if said is None:
        return None
    return CodeFrame(file=said[2] or said[3], line=int(said[1] or said[4]), origin=said.line.origin)


def _matching(evidence: Evidence, text: CleanText, chain: ErrorChain | None = None) -> list[Finding]:
    """The findings of the rows for a text, the surest first; `chain` holds the frames if the text is an exception."""
    assert evidence.reading is not None
    failures = (chain,) if chain is not None else ()
    seen = replace(evidence, reading=replace(evidence.reading, text=text, failures=failures))
    found = [one for one in _matcher().find(seen) if isinstance(one, Finding)]
    return sorted(found, key=lambda one: -one.confidence)


@functools.cache
def _matcher() -> Matcher:
    return Matcher(OwnRows((CODE,)))


def _text_of(error: PythonError) -> CleanText:
    said = _written(error).flat.split("\n")
    return CleanText(tuple(Line(0, line, error.origin) for line in said))


def _written(error: PythonError) -> Written:
    return Written(f"{error.name}: {error.message}")


def _evidence(error: PythonError, frame: CodeFrame | None) -> Iterator[Observation]:
    if frame is not None:
        yield _place(frame)
    yield observe("error", f"{error.name}: {error.message}".rstrip(": "), error.origin)


def _place(frame: CodeFrame) -> Observation:
    where = f"{_at(frame)}{f' in {frame.function}' if frame.function.isidentifier() else ''}"
    seen = observe(_OF[frame.owner], f"{where}: {frame.source}" if frame.source else where, frame.origin)
    return replace(seen, file=frame.file, line=frame.line) if frame.owner == "user" else seen


def _at(frame: CodeFrame) -> str:
    """'train.py:8', 'Cell In[3]:5'."""
    name = frame.file.replace("\\", "/").rpartition("/")[2]
    return f"{name}:{frame.line}" if frame.line else name


def _title(found: Finding, error: PythonError, frame: CodeFrame | None) -> str:
    meaning = _filled(found.title, frame)
    if not meaning:
        meaning = f"{error.name}: {error.message}".partition("\n")[0].rstrip(": ")
    meaning = meaning if len(meaning) <= _LONGEST_MESSAGE else meaning[: _LONGEST_MESSAGE - 3] + "..."
    if frame is None:
        return _capital(meaning)
    source = frame.source if len(frame.source) <= _LONGEST_SOURCE else ""
    return f"{_at(frame)}{f' `{source}`' if source else ''}: {meaning}"


def _filled(template: str, frame: CodeFrame | None) -> str:
    if "{" not in template:
        return template
    call = _CALL.match(frame.source) if frame is not None else None
    given, called = (call[2], call[1].rpartition(".")[2]) if call is not None else ("the input", "the layer")
    return template.replace("{input}", given).replace("{layer}", called)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


FINDERS = (Finder(id=UNKNOWN, find=_find, reads="text"),)


# a finding explains an error of code if it is proven or not much less sure, and rests on the same exception
_PROVEN, _DOUBT_OF_CODE = 0.6, 0.25


def with_code(found: list[Finding], catalogue: Mapping[str, Cause], reading: Reading | None) -> list[Finding]:
    """The findings, with errors of the program's code after proven faults of the machine, and without candidates.

    An error of the code is dropped if another finding rests on the same exception and so explains it.
    """
    code = [f for f in found if is_of_code(f, catalogue)]
    if not code or reading is None:
        return found
    others = [f for f in found if f not in code]
    code = [f for f in code if not any(_explains_exception(other, f, reading) for other in others)]
    if any(f.severity == "broken" for f in code):
        others = [f for f in others if f.confidence >= _PROVEN or f.severity == "info"]
    return sorted((*others, *code), key=lambda f: RANK[f.severity])


def _explains_exception(other: Finding, code: Finding, reading: Reading) -> bool:
    """Whether a finding about the machine quotes a line of the exception that looks like an error of the code."""
    if other.confidence < min(_PROVEN, code.confidence - _DOUBT_OF_CODE) or other.severity == "info":
        return False
    return not origins_of([code], reading).isdisjoint(o.origin for o in other.evidence)


def origins_of(findings: Sequence[Finding], reading: Reading) -> set[str]:
    """The origins of the lines that findings quote, and of all lines of the exceptions that they quote."""
    seen = {o.origin for finding in findings for o in finding.evidence}
    lines = reading.text.lines
    spans = [{line.origin for line in lines[chain.first : chain.last + 1]} for chain in reading.failures]
    return seen.union(*(span for span in spans if not span.isdisjoint(seen)))


def is_of_code(finding: Finding, catalogue: Mapping[str, Cause]) -> bool:
    """Whether the cause of the finding lies in the program's own code."""
    return finding.id in catalogue and catalogue[finding.id].family == "code"
