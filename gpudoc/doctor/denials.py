"""Trouble that somebody says is not there, or no longer: 'no Xid 79 in dmesg'. Nothing else may read it as a fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpudoc.doctor.model import Evidence, Observation, observe
from gpudoc.doctor.vocabulary import Listed
from gpudoc.facts.readers.genre import FIRST_PERSON
from gpudoc.facts.readers.intake import read_lines
from gpudoc.facts.readers.model import Line, Mention, Text
from gpudoc.patterns import Pattern, Span

_TROUBLE = Listed("trouble")
# this many lines are somebody's own words; a longer text is, if it speaks in the first person
_FEW_LINES, _MOST_LINES = 25, 400
_AROUND, _MOST_MENTIONS = 80, 40
_CLAUSE_ENDS = Pattern(
    r"(?i)[.!?;:,\n]\s|[\u3002\uff0c\uff01\uff1f\n]|\b(?:but|however|although|yet|still|except)\b|\u4f46|\b\u043d\u043e\b"
)
_BEFORE = Pattern(
    r"(?i)(?:\b(?:no|not|never|nothing|none|neither|nor|zero)|n't|(?<![\d.:])\b0|"
    r"\u6ca1(?:\u6709|\u518d)?|\u4e0d\u518d|\b\u043d\u0435\u0442)"
    r"(?:\s?(?:\u518d|\u51fa\u73b0|\u9047\u5230|\u62a5)| (?:more|longer|further|other|any|an?|the|such|so|too|very|"
    r"that|really|visible|single|one|be|been|get|got|see|seen|saw|had|have|hit|new|real|became|becomes?|went|turned|"
    r"gave|gives|shows?|showed|runs?|ran|running|goes|going))* ?$"
)
# what is lacking may itself be the fault; trouble that is lacking is none
_LACKING = Pattern(r"(?i)\bwithout(?: (?:any|an?|the|single|further|more))* ?$")
_BEHIND = Pattern(
    r"(?i)^\W?(?:[\w-]+ ){0,4}?(?:any ?more\b|no longer\b|(?:is|are|was|were|been|got) (?:now |all )?(?:gone|fixed|"
    r"solved|resolved|over)\b|(?:disappear|vanish)\w*|went away|(?:did|do|does|has|have)(?:n't| not| never) "
    r"(?:\w+ ){0,2}?(?:come|came|happen\w*|occur\w*|appear\w*|return\w*|show\w*|recur\w*)(?: back| again| up)*)"
)


def is_told(text: Text) -> bool:
    """Whether somebody tells it in his own words; a program's log may hold the same words and complain of nothing."""
    return len(text.lines) <= _FEW_LINES or text.find(FIRST_PERSON) is not None


def is_denied(text: Text, mention: Mention) -> bool:
    """Whether the clause around a mention says that it is not so, or no longer."""
    return _denied(text, mention) is not None


def without_denied(evidence: Evidence) -> tuple[Evidence, Observation | None]:
    """The evidence as it is without the trouble that its text denies, and the first line that denies some."""
    reading = evidence.reading
    if evidence.source != "file" or reading is None:
        return evidence, None
    text = reading.text
    if len(text.lines) > _MOST_LINES or not is_told(text):
        return evidence, None
    spans: dict[Line, list[str]] = {}
    for mention in text.find_all(_TROUBLE, most=_MOST_MENTIONS):
        span = _denied(text, mention, _LACKING)
        if span is not None:
            spans.setdefault(mention.line, []).append(text.flat[slice(*span)])
    if not spans:
        return evidence, None
    said = next(iter(spans))
    lines = tuple(_cut(line, spans.get(line, ())) for line in text.lines)
    again = read_lines(lines, reading.kind)
    meant = replace(again, traces=reading.traces, snapshots=reading.snapshots)
    denial = observe("denied", said.text.strip(), said.origin)
    return replace(evidence, machine=again.machine, reading=meant), denial


def _cut(line: Line, denied: Sequence[str]) -> Line:
    words = " ".join(line.text.split()) if denied else line.text
    for clause in denied:
        words = words.replace(clause, "", 1)
    return replace(line, text=words)


def _denied(text: Text, mention: Mention, *also: Pattern) -> Span | None:
    """From where to where a mention is denied, with the words that deny it; None where it is not."""
    start, end = mention.match.span()
    low = max(0, start - _AROUND)
    before, behind = text.flat[low:start], text.flat[end : end + _AROUND]
    ends = [found.end() for found in _CLAUSE_ENDS.finditer(before)]
    clause = ends[-1] if ends else 0
    stop = _CLAUSE_ENDS.search(behind)
    behind = behind[: stop.start()] if stop else behind
    for pattern in (_BEFORE, *also):
        if (said := pattern.search(before[clause:])) is not None:
            return low + clause + said.start(), end
    said = _BEHIND.search(behind)
    return None if said is None else (start, end + said.end())
