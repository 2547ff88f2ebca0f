"""What somebody says of trouble in a text: that there is some, that it is over, or nothing: a plain question."""

from __future__ import annotations

from collections.abc import Collection

from gpudoc.doctor.model import Observation, observe
from gpudoc.doctor.vocabulary import Listed
from gpudoc.facts.readers.genre import FIRST_PERSON
from gpudoc.facts.readers.model import Mention, Text
from gpudoc.patterns import Pattern

_COMPLAINT, _SOLVED, _QUESTION = Listed("complaint"), Listed("solved"), Listed("question")
_FIGURE, _ASKED_IF_NORMAL, _FINISHED = Listed("figure"), Listed("asked-if-normal"), Listed("finished")
# so many lines are somebody's own words; a longer text is, if it speaks in the first person
_FEW_LINES = 25
_LONGEST_QUESTION, _MOST_MENTIONS, _AROUND = 600, 40, 80
_CLAUSE_ENDS = Pattern(
    r"(?i)[.!?;:,\n]\s|[\u3002\uff0c\uff01\uff1f\n]|\b(?:but|however|although|yet|still|except)\b|\u4f46|\b\u043d\u043e\b"
)
_CONTRAST = Pattern(r"(?i)\b(?:but|however|although|though|yet|still|except|until)\b")
_DENIES_BEFORE = Pattern(
    r"(?i)(?:\b(?:no|not|never|nothing|none|neither|nor|zero)|n't|(?<![\d.:])\b0)"
    r"(?: (?:more|longer|further|other|any|an?|the|such|so|too|very|that|really|visible|single|be|been|get|got|see))* $"
)
_DENIES_BEHIND = Pattern(
    r"(?i)^\W?(?:\w+ ){0,4}?(?:any ?more\b|no longer\b|(?:is|are|was|were|been|got) (?:now |all )?(?:gone|fixed|solved|"
    r"resolved|over)\b|(?:disappear|vanish)\w*|went away)"
)
# what a program prints says nothing of how somebody feels
_PRINTED = Pattern(r"^\s*(?:[|+\[{<]|File \")|\w(?:Error|Exception|Warning)\b|\.(?:py|cpp|cu|cc|c|h):\d+")
_FAILS = Pattern(
    r"(?m)^(?:\w+\.)*\w+(?:Error|Exception)\b|Traceback \(most recent call last\)|^Segmentation fault|\(core dumped\)"
)


def is_told(text: Text) -> bool:
    """Whether somebody tells it in his own words; a program's log may hold the same words and complain of nothing."""
    return len(text.lines) <= _FEW_LINES or text.find(FIRST_PERSON) is not None


def complaint_of(text: Text) -> Observation | None:
    """The line in which somebody says that something is wrong, though nothing in the text fails."""
    said = _complaint(text) if is_told(text) else None
    return None if said is None else observe("complaint", said.line.text.strip(), said.line.origin)


def is_failure(text: Text) -> bool:
    """Whether a program ended with an exception in it, or by a signal."""
    return text.find(_FAILS) is not None


def is_denied(text: Text, mention: Mention) -> bool:
    """Whether the clause around a mention says that it is not so, or no longer."""
    start, end = mention.match.span()
    before, behind = text.flat[max(0, start - _AROUND) : start], text.flat[end : end + _AROUND]
    ends = [found.end() for found in _CLAUSE_ENDS.finditer(before)]
    before = before[ends[-1] if ends else 0 :]
    stop = _CLAUSE_ENDS.search(behind)
    behind = behind[: stop.start()] if stop else behind
    return _DENIES_BEFORE.search(before) is not None or _DENIES_BEHIND.search(behind) is not None


def end_of_trouble(text: Text) -> Observation | None:
    """The line that says that the trouble is over; None where there is none, or something goes wrong behind it."""
    last = None
    for mention in text.find_all(_SOLVED, most=_MOST_MENTIONS):
        if not is_denied(text, mention) and not _PRINTED.search(mention.line.text):
            last = mention
    if last is None:
        return None
    end = last.match.span()[1]
    rest = text.flat[end:]
    if "?" in rest or _FAILS.search(rest) or _CONTRAST.search(rest) or _complaint(text, behind=end) is not None:
        return None
    return observe("solved", last.line.text.strip(), last.line.origin)


def plain_question(text: Text) -> Observation | None:
    """The line of a short text that asks something; None where the text also complains, or a program failed in it."""
    if not _is_calm(text):
        return None
    asked = text.find(_QUESTION)
    return None if asked is None else observe("question", asked.line.text.strip(), asked.line.origin)


def finished_work(text: Text) -> Observation | None:
    """The last line of a short note that says that something is done; None where something goes wrong in it."""
    end = len(text.flat)
    is_end = any(said.match.span()[1] == end and not is_denied(text, said) for said in text.find_all(_FINISHED))
    if not is_end or not _is_calm(text):
        return None
    return observe("finished", text.lines[-1].text.strip(), text.lines[-1].origin)


def _is_calm(text: Text) -> bool:
    """Whether a text is short, nothing fails in it, and nobody complains: who asks if a figure is normal does not."""
    if len(text.flat) > _LONGEST_QUESTION or is_failure(text):
        return False
    figures = text.find_all(_FIGURE) if text.find(_ASKED_IF_NORMAL) is not None else ()
    return _complaint(text, but=frozenset(mention.start for mention in figures)) is None


def _complaint(text: Text, behind: int = 0, but: Collection[int] = ()) -> Mention | None:
    for mention in text.find_all(_COMPLAINT, most=_MOST_MENTIONS):
        if mention.start < behind or mention.start in but or is_denied(text, mention):
            continue
        if not _PRINTED.search(mention.line.text):
            return mention
    return None
