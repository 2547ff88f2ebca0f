"""Find faults by number instead of by name: errors of CUDA and NVML, and Xids that a person mentions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from gpudoc.doctor.causes.sign import by_text, quote, reported, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.readers.model import CleanText
from gpudoc.facts.readers.words import Words
from gpudoc.knowledge.error_numbers import cause_of_error
from gpudoc.knowledge.xids import find_xid
from gpudoc.patterns import Pattern

_NUMBER = Pattern(
    r"(?i)\bcuda ?(?:runtime )?(?:error|failure|err) ?[(:=#]? ?(\d{1,3})\b(?![.\d%])"
    r"|\bcuda ?success\b[^\n]{0,24}\((?:0 vs\.? )?(\d{1,3})(?: vs\.? 0)?\)"
    r"|\bcu(?:da)?[a-z]\w{4,40}\b[^\n]{0,160}\berror code ?[:=] ?(\d{1,3})\b"
    r"|\bcuda initiali[sz]ation failure with error:? (\d{1,3})\b"
    # each framework words these errors in its own way
    r"|\bcu(?:da)?(?:Init|Get|Device|Ctx|Driver|Runtime)\w*\b[^\n]{0,40}?"
    r"(?:return\w*|fail\w*|error|result|status|code|[:=>])[^\n\d]{0,12}(\d{2,3})(?![\d.%])"
    r"|\b(?:cuda|nvidia)\s(?:\w+\s){0,2}(?:error|failure|err|status|code)(?:\scode)?\W{0,4}(\d{2,3})(?![\d.%])"
    r"|\bcode ?= ?(\d{2,3})\(cuda"
    r"|[(\[](8\d\d|999|214|222)[)\]]\W{0,4}(?:call to cu|[^\n]{0,40}\bcuda)"
    r"|[(\[](8\d\d|999|214|222) vs\.? 0[)\]]"
)
_NVML_NUMBER = Pattern(
    r"(?i)\bnvml\w*\b[^\n]{0,40}\b(?:error|return\w*|code|failed|status)\b(?: code)?\W{1,4}(\d{1,2})\b(?![.\d%])"
    r"|\bnvidia-smi\b[^\n]{0,30}\b(?:return|exit) (?:code|status)\W{1,3}(\d{1,2})\b"
)
_ABOUT_NVML = words(r"nvml", r"nvidia-smi")
_ABOUT_CUDA = words(r"\bcuda", r"\bcu[A-Z]\w+")


def _find(
    library: Literal["cuda", "nvml"], about: Words, numbers: Pattern, text: CleanText
) -> Iterator[Finding | Skip]:
    if text.find(about) is None:
        return
    for said in text.find_all(numbers, most=20):
        number = int(next(group for group in said.match.groups() if group))
        row = cause_of_error(library, number, "printed")
        if row is not None:
            yield Finding(id=row[0], confidence=row[1], evidence=(quote(said, f"{library.upper()} error {number}"),))
            return


# "we get XID 79", "Xids 63 and 64 in the log", without a pasted line of the log itself
_TOLD_XID = Pattern(r"(?i)\bxid(?:s|\s?errors?|\s?events?|\s?codes?|\s?messages?)?(?:\sof)?\W{1,3}(\d{1,3})\b")
_XID_SURE = {"memory": 0.8, "bus": 0.85, "hardware": 0.7, "link": 0.7, "firmware": 0.85, "application": 0.55}


def _find_told_xids(text: CleanText, _: Evidence) -> Iterator[Finding | Skip]:
    for said in text.find_all(_TOLD_XID, most=10):
        row = find_xid(int(said[1]))
        if row is not None and row.cause and row.kind in _XID_SURE:
            yield Finding(id=row.cause, confidence=_XID_SURE[row.kind], evidence=(quote(said, f"Xid {said[1]}"),))
            return


FINDERS = (
    by_text("driver_too_old", lambda text: _find("cuda", _ABOUT_CUDA, _NUMBER, text)),
    by_text("driver_library_mismatch", lambda text: _find("nvml", _ABOUT_NVML, _NVML_NUMBER, text)),
    reported("gpu_fallen_off_bus", _find_told_xids, though_it_works=True),
)
