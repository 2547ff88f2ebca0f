"""What a person says about trouble in a text: there is some, it is over, or none: a plain question.

Denied trouble ('no Xid 79 in dmesg') is removed from the evidence, so that no finder reads it as a fault.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from gpudoc.doctor.causes.sign import Listed
from gpudoc.doctor.model import Evidence, Observation, observe
from gpudoc.facts.readers.genre import FIRST_PERSON
from gpudoc.facts.readers.intake import read_lines
from gpudoc.facts.readers.model import CleanText, Line, Mention
from gpudoc.patterns import Pattern, Span

_TROUBLE = Listed("trouble")
# people also speak of themselves if they fill in a form for a bug, or ask in Chinese or Russian
_TELLS = Pattern(
    r"(?im)^\W{0,6}(?:describe the bug|(?:current|expected|actual) behaviou?r|(?:steps )?to reproduce)\b|"
    r"我|请问|求助|\bу меня\b"
)
# a text of at most 25 lines is a person's own words; a longer one only if it speaks in the first person
_FEW_LINES, _MOST_LINES = 25, 400
_AROUND, _MOST_MENTIONS = 80, 40
_CLAUSE_ENDS = Pattern(
    r"(?i)[.!?;:,\n]\s|[\u3002\uff0c\uff01\uff1f\n]|\b(?:but|however|although|yet|still|except)\b|\u4f46|\b\u043d\u043e\b"
)
_BEFORE = Pattern(
    r"(?i)(?:\b(?:no|not|never|nothing|none|neither|nor|zero)|n't|"
    # 0 as a count, not as a number: 'GPU 0', 'rank 0'
    r"(?<![\d.:])(?<!\bgpu )(?<!\brank )(?<!\bnode )(?<!\bcard )(?<!\bdevice )\b0|"
    r"\u6ca1(?:\u6709|\u518d)?|\u4e0d\u518d|\b\u043d\u0435\u0442)"
    r"(?:\s?(?:\u518d|\u51fa\u73b0|\u9047\u5230|\u62a5)| (?:more|longer|further|other|any|an?|the|such|so|too|very|"
    r"that|really|visible|single|one|be|been|get|got|see|seen|saw|had|have|hit|new|real|became|becomes?|went|turned|"
    r"gave|gives|shows?|showed|runs?|ran|running|goes|going|is|are|was|were))* ?$"
)
# 'without' before trouble denies it; before another thing, the lack may itself be the fault
_LACKING = Pattern(r"(?i)\bwithout(?: (?:any|an?|the|single|further|more))* ?$")
_BEHIND = Pattern(
    r"(?i)^\W?(?:[\w-]+ ){0,4}?(?:any ?more\b|no longer\b|(?:is|are|was|were|been|got) (?:now |all )?(?:gone|fixed|"
    r"solved|resolved|over)\b|(?:disappear|vanish)\w*|went away|(?:did|do|does|has|have)(?:n't| not| never) "
    r"(?:\w+ ){0,2}?(?:come|came|happen\w*|occur\w*|appear\w*|return\w*|show\w*|recur\w*)(?: back| again| up)*)"
)


def is_told(text: CleanText) -> bool:
    """Whether the text is a person's own words; a program's log may have the same words without a complaint."""
    return len(text.lines) <= _FEW_LINES or speaks(text)


def speaks(text: CleanText) -> bool:
    """Whether a person speaks in the text; logs of programs do not say I."""
    return text.find(FIRST_PERSON) is not None or text.find(_TELLS) is not None


def is_denied(text: CleanText, mention: Mention) -> bool:
    """Whether the clause around a mention says that it is not true, or no longer."""
    return _denied(text, mention) is not None


def without_denied(evidence: Evidence) -> tuple[Evidence, Observation | None]:
    """The evidence without the trouble that its text denies, and the first line that denies some, else None."""
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


def _denied(text: CleanText, mention: Mention, *also: Pattern) -> Span | None:
    """The span of a denied mention together with the words that deny it; None if it is not denied."""
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


_COMPLAINT, _SOLVED, _QUESTION = Listed("complaint"), Listed("solved"), Listed("question")
_FINISHED, _SUFFERS = Listed("finished"), Listed("suffers")
# a figure is not a complaint if the text asks whether it is normal, or what it means
_ASKED_OF = ((Listed("asked-if-normal"), Listed("figure")), (Listed("asked-of-meaning"), Listed("low-use")))
# a person who asks why wants to know or complains: the likelihood from the words decides
_ASKED_WHY = (Listed("question"), Listed("asked-why"))
_LONGEST_QUESTION = 600
# a problem that can or must be solved is not solved yet
_TO_BE = Pattern(
    r"(?i)\b(?:can|could|may|might|must|should|shall|will|would|(?<!seems )(?<!appears )to|needs?|how|if|until|unless)"
    r"(?:n['\u2019]t| not)?(?: \w+){0,3} (?:be|gets?|getting)(?: \w+)? ?$"
)
# trouble that goes away only under a condition is not over
_CONDITION = Pattern(r"(?i)\b(?:until|unless|if|whenever)\b[^.!?\n]*$")
_WHEN, _NOW = Pattern(r"(?i)\bwhen\b[^.!?\n]*$"), Pattern(r"(?i)\b(?:is|are|works|runs|no longer)\b")
# it is not trouble if nobody knows why it works
_CONTRAST = Pattern(
    r"(?i)\b(?:but|however|although|though|yet|still|except|until)\b"
    r"(?!\W{1,3}(?:i|we) (?:have no idea|am not sure|(?:still )?do(?:n['\u2019]t| not) (?:know|understand)))"
)
# a line that a program prints is not a complaint by a person
_PRINTED = Pattern(
    r"^\s*(?:[|+\[{<]|File \"|(?:INFO|WARNING|DEBUG)[: ])|\w(?:Error|Exception|Warning)\b|\.(?:py|cpp|cu|cc|c|h):\d+"
)
_LOGGED = Pattern(r"(?i)^\W{0,4}(?:\w+ )?(?:epoch|step|iter(?:ation)?|batch)s?\b\W{0,4}\d")
_FAILS = Pattern(
    r"(?m)^(?:\w+\.)*\w+(?:Error|Exception)\b|\b[A-Z]\w{1,40}Error: \w|Traceback \(most recent call last\)|"
    r"^Segmentation fault|\(core dumped\)|^(?:ERROR|FATAL|Error|fatal|error): \S|: command not found\b|"
    r"^[\w./-]{1,40}: (?:[Cc]annot|[Cc]ould not|[Uu]nable to|[Pp]ermission denied)\b"
)


def complaint_of(text: CleanText) -> Observation | None:
    """The line in which a person says that something is wrong; None if there is none."""
    said = _complaint(text) if is_told(text) else None
    return None if said is None else observe("complaint", said.line.text.strip(), said.line.origin)


def suffers(text: CleanText) -> bool:
    """Whether a person says that a run is slow, hangs, dies or goes wrong, even if the text also asks something."""
    return is_told(text) and text.find(_SUFFERS) is not None


def is_failure(text: CleanText) -> bool:
    """Whether the text shows a program that ended with an exception or by a signal."""
    return text.find(_FAILS) is not None


def end_of_trouble(text: CleanText) -> Observation | None:
    """The line that says that the trouble is over; None if there is none, or if something goes wrong after it."""
    last = None
    for mention in text.find_all(_SOLVED, most=_MOST_MENTIONS):
        if not is_denied(text, mention) and not _PRINTED.search(mention.line.text) and not _is_to_be(text, mention):
            last = mention
    if last is None:
        return None
    end = last.match.span()[1]
    rest = text.flat[end:]
    if "?" in rest or _FAILS.search(rest) or _CONTRAST.search(rest) or _complaint(text, behind=end) is not None:
        return None
    return observe("solved", last.line.text.strip(), last.line.origin)


def _is_to_be(text: CleanText, solved: Mention) -> bool:
    start, end = solved.match.span()
    before = text.flat[max(0, start - 2 * _AROUND) : start]
    if _CONDITION.search(before) or (_WHEN.search(before) and _NOW.search(text.flat[start:end])):
        return True
    # 'this should be fixed now' means that it is fixed
    return _TO_BE.search(before[-_AROUND:]) is not None and not text.flat[:end].endswith("now")


def plain_question(text: CleanText, *, may_ask_why: bool = False) -> Observation | None:
    """The line of a short text that asks something; None if the text also complains or a program failed in it.

    With `may_ask_why`, a question why something is so is not a complaint.
    """
    return question(text) if is_calm(text, may_ask_why=may_ask_why) else None


def question(text: CleanText) -> Observation | None:
    """The line of a short text that asks something, even if it also complains; None if a program failed in it."""
    asked = text.find(_QUESTION) if _is_short(text) else None
    return None if asked is None else observe("question", asked.line.text.strip(), asked.line.origin)


def finished_work(text: CleanText) -> Observation | None:
    """The last line of a short note that says that something is done; None if something goes wrong in it."""
    end = len(text.flat)
    is_end = any(said.match.span()[1] == end and not is_denied(text, said) for said in text.find_all(_FINISHED))
    if not is_end or not is_calm(text):
        return None
    return observe("finished", text.lines[-1].text.strip(), text.lines[-1].origin)


def first_words(text: CleanText) -> Observation:
    """The first line that a person wrote."""
    line = next((line for line in text.lines if line.text.strip() and not _is_printed(line)), text.lines[0])
    return observe("complaint", line.text.strip(), line.origin)


def told_length(text: CleanText) -> int:
    """How many characters of a text a person wrote; 0 if only programs printed it."""
    own = (line.text.strip() for line in text.lines if not _is_printed(line))
    return sum(map(len, own)) if is_told(text) else 0


def _is_printed(line: Line) -> bool:
    return bool(_PRINTED.search(line.text) or _LOGGED.search(line.text))


def is_calm(text: CleanText, *, may_ask_why: bool = False) -> bool:
    """Whether the person's words are short, nothing fails in the text, and nobody complains."""
    if not _is_short(text):
        return False
    asked_of = (*_ASKED_OF, _ASKED_WHY) if may_ask_why else _ASKED_OF
    excused = [m.match.span() for asked, read in asked_of if text.find(asked) is not None for m in text.find_all(read)]
    return _complaint(text, but=excused) is None


def _is_short(text: CleanText) -> bool:
    return told_length(text) <= _LONGEST_QUESTION and not is_failure(text)


def _complaint(text: CleanText, behind: int = 0, but: Collection[Span] = ()) -> Mention | None:
    for mention in text.find_all(_COMPLAINT, most=_MOST_MENTIONS):
        begin, end = mention.match.span()
        is_excused = any(start <= begin and end <= stop for start, stop in but)
        if begin < behind or is_excused or is_denied(text, mention):
            continue
        if not _PRINTED.search(mention.line.text):
            return mention
    return None
