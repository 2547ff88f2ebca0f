"""The way out that an error names itself ('... by setting NCCL_NVLS_ENABLE=0'), relayed where it stands for itself."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from gpudoc.doctor.model import Finding, Remedy
from gpudoc.doctor.remedies import do
from gpudoc.facts.readers.model import Text
from gpudoc.frozen import dataclass
from gpudoc.knowledge.tables import read_list
from gpudoc.patterns import Pattern

_NEAR = 4
_MOST = 3


@functools.cache
def _pattern(name: str) -> Pattern:
    """An expression of relayed.yaml, which is written in parts."""
    return Pattern("".join(read_list("relayed.yaml", name)))


def _says(name: str, text: str) -> bool:
    return _pattern(name).search(text) is not None


@dataclass(frozen=True, slots=True)
class Advice:
    """One setting that an error advises, with the places of the lines around it."""

    setting: str
    near: tuple[str, ...]


def read(text: Text) -> tuple[Advice, ...]:
    """Every setting that an error in the text advises, in order and each once."""
    found: dict[str, Advice] = {}
    for place, line in enumerate(text.lines):
        if "_" not in line.text or not _says("advice", line.text) or _says("told", line.text):
            continue
        around = text.lines[max(0, place - _NEAR + 1) : place + 1]
        if any(_says("failed", one.text) for one in around):
            for setting in _settings(line.text):
                found.setdefault(setting.split("=")[0], Advice(setting, tuple(one.origin for one in around)))
    return tuple(found.values())[:_MOST]


def _settings(line: str) -> Iterator[str]:
    for match in _pattern("pair").finditer(line):
        before = line[: match.start()]
        if not _says("advice", before[-160:]) or _says("condition", before) or _says("not_advised", before[-80:]):
            continue
        value = (match[2] or match[3]).rstrip(".,:")
        if value and not _says("shows", match[1]) and not _says("loads", match[1]):
            yield f"{match[1]}={value}"


def first_steps(finding: Finding, advices: Sequence[Advice]) -> tuple[Remedy, ...]:
    """What the lines that support a finding advise themselves, as steps to put before its own."""
    origins = {seen.origin for seen in finding.evidence}
    mine = [advice.setting for advice in advices if origins.intersection(advice.near)]
    if not mine:
        return ()
    return (do(f"Set {' and '.join(mine)}, as the error itself advises.", f"export {' '.join(mine)}"),)
