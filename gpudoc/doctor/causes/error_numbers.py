"""The numbers of CUDA's and NVML's errors, as frameworks print them in place of their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from gpudoc.doctor.causes.sign import by_text, quote, words
from gpudoc.doctor.model import Finding, Skip
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text
from gpudoc.facts.readers.words import Words
from gpudoc.knowledge.error_numbers import cause_of_error

_NUMBER = Pattern(
    r"(?i)\bcuda ?(?:runtime )?(?:error|failure|err) ?[(:=#]? ?(\d{1,3})\b(?![.\d%])"
    r"|\bcuda ?success\b[^\n]{0,24}\((?:0 vs\.? )?(\d{1,3})(?: vs\.? 0)?\)"
    r"|\bcu(?:da)?[a-z]\w{4,40}\b[^\n]{0,160}\berror code ?[:=] ?(\d{1,3})\b"
    r"|\bcuda initiali[sz]ation failure with error:? (\d{1,3})\b"
)
_NVML_NUMBER = Pattern(
    r"(?i)\bnvml\w*\b[^\n]{0,40}\b(?:error|return\w*|code|failed|status)\b(?: code)?\W{1,4}(\d{1,2})\b(?![.\d%])"
    r"|\bnvidia-smi\b[^\n]{0,30}\b(?:return|exit) (?:code|status)\W{1,3}(\d{1,2})\b"
)
_ABOUT_NVML = words(r"nvml", r"nvidia-smi")
_ABOUT_CUDA = words(r"\bcuda", r"\bcu[A-Z]\w+")


def _find(library: Literal["cuda", "nvml"], about: Words, numbers: Pattern, text: Text) -> Iterator[Finding | Skip]:
    if text.find(about) is None:
        return
    for said in text.find_all(numbers, most=20):
        number = int(next(group for group in said.match.groups() if group))
        row = cause_of_error(library, number, "printed")
        if row is not None:
            yield Finding(id=row[0], confidence=row[1], evidence=(quote(said, f"{library.upper()} error {number}"),))
            return


FINDERS = (
    by_text("driver_too_old", lambda text: _find("cuda", _ABOUT_CUDA, _NUMBER, text)),
    by_text("driver_library_mismatch", lambda text: _find("nvml", _ABOUT_NVML, _NVML_NUMBER, text)),
)
