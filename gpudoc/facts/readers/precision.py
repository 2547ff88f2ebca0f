"""Whether a text says that training computes in float16, bfloat16 or float32."""

from __future__ import annotations

from gpudoc.facts.readers.gather import Gather
from gpudoc.facts.readers.model import CleanText, Mention
from gpudoc.facts.readers.words import Words
from gpudoc.patterns import Pattern

FLOAT16, BFLOAT16, FLOAT32 = "float16", "bfloat16", "float32"
_ABOUT_LOSSES = ("loss", "nan")
# each name of a precision contains one of these
WORDS = ("16", "32", "half", "amp", "autocast", "gradscaler", "precision")
_HALF = Words(
    r"\bfp16\b",
    r"\bfloat16\b",
    r"half[- _]precision\b",
    r"\b16-(?:mixed|true)\b",
    r"\b(?:use_)?amp\b",
    r"\bautocast\b",
    r"\bgradscaler\b",
    r"mixed[- _]precision\b",
    r"\.half\(\)",
    r"\bprecision\W{1,4}16\b",
)
_BRAIN = Words(r"\bbf16\b", r"\bbfloat16\b")
_FULL = Words(r"\bfp32\b", r"\bfloat32\b", r"\bfull[- ]precision\b", r"\b32-true\b", r"\bprecision\W{1,4}32\b")
_OFF_BEFORE = Pattern(r"(?i)\b(?:no|not|without|disabl\w+|never)(?: (?:use|using|the|any|with))* $")
_OFF_BEHIND = Pattern(r"(?i)^(?:=|:|\s|['\"])*(?:false|off|none|no|disabled)\b")
# words that mark another setting, not the one that fails
_COMPARED = Pattern(
    r"(?i)\b(?:fine|works?|worked|okay|well|stable|normal\w*|converges?|instead|try|tried|switch\w*|if)\b"
)
_AS_WELL = Pattern(r"(?i)\b(?:also|same|too|even|still|as well)\b")
_SENTENCE_ENDS = Pattern(r"[.;!?]\s|\n")


def read(text: CleanText, gather: Gather) -> None:
    """Put the precision into `gather` if a text about losses names it; a text without any of `WORDS` names none."""
    if not text.may_hold(_ABOUT_LOSSES):
        return
    half = [mention for mention in text.find_all(_HALF) if not _is_off(text, mention)]
    off = [mention for mention in text.find_all(_HALF) if _is_off(text, mention)]
    full = [mention for mention in text.find_all(_FULL) if not _is_off(text, mention)]
    meant = [mention for mention in (*full, *off) if not _COMPARED.search(_sentence(text, mention))]
    as_well = [mention for mention in (*full, *off) if _AS_WELL.search(_sentence(text, mention))]
    brain = text.find(_BRAIN)
    if as_well or (meant and not half):
        gather.put("torch.precision", FLOAT32, (as_well or meant)[0].line)
    elif brain is not None and not _is_off(text, brain) and not any("16" in one[0] for one in half):
        gather.put("torch.precision", BFLOAT16, brain.line)
    elif half:
        gather.put("torch.precision", FLOAT16, half[0].line)


def _is_off(text: CleanText, mention: Mention) -> bool:
    start, end = mention.match.span()
    before, behind = text.flat[max(0, start - 30) : start], text.flat[end : end + 20]
    return _OFF_BEFORE.search(before) is not None or _OFF_BEHIND.search(behind) is not None


def _sentence(text: CleanText, mention: Mention) -> str:
    start, end = mention.match.span()
    before = [found.end() for found in _SENTENCE_ENDS.finditer(text.flat[max(0, start - 100) : start])]
    stop = _SENTENCE_ENDS.search(text.flat[end : end + 100])
    begin = max(0, start - 100) + before[-1] if before else max(0, start - 100)
    return text.flat[begin : end + (stop.start() if stop else 100)]
