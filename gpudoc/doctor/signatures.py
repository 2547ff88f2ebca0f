"""The one matcher of the signatures: findings, with their lines, for the rows of knowledge/signatures that match."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from gpudoc.doctor.causes.sign import as_words, quote
from gpudoc.doctor.complaint import is_denied
from gpudoc.doctor.model import Evidence, Finder, Finding, Observation, Skip
from gpudoc.doctor.shares import measured
from gpudoc.facts.model import Absent, Machine, fact_at
from gpudoc.facts.readers.model import CleanText, Mention
from gpudoc.facts.readers.words import Written
from gpudoc.knowledge.signature_rows import OwnRows, Signature
from gpudoc.patterns import Pattern

# the place in a title for a group of its pattern
_GROUP = Pattern(r"\{(\d)\}")
_GIVEN, _KNOWN = ("true", "false"), "known"
# as a part of the share that would matter
_SMALL = 0.5
# the confidence that work which takes longer than its step delays the step
_APART = 0.6


class Matcher:
    """Matches rows against texts; a row is prepared once a text has a word that one of its patterns requires."""

    def __init__(self, rows: Sequence[Signature]) -> None:
        self._rows = rows
        self._ready: dict[int, _Ready] = {}
        known = rows.anchors if isinstance(rows, OwnRows) else None
        self._by_anchor = anchors_of_rows(rows) if known is None else known

    def find(self, evidence: Evidence) -> Iterator[Finding | Skip]:
        """A finding for each row that matches, in the order of the rows."""
        assert evidence.reading is not None
        text = evidence.reading.text
        for place in self._candidates(text):
            if place not in self._ready:
                self._ready[place] = _Ready(self._rows[place])
            finding = self._ready[place].find(text, evidence)
            if finding is not None:
                yield finding

    def small_shares(self, text: CleanText) -> set[str]:
        """The causes whose share of the time a text states, if it is less than half of the share that would matter."""
        stated: dict[str, float] = {}
        for row in (one for place in self._candidates(text) if (one := self._rows[place]).share):
            if (share := measured(text, as_words(row.any), row.fact)) is not None:
                stated[row.cause] = max(share.percent / row.share, stated.get(row.cause, 0.0))
        return {cause for cause, weighed in stated.items() if weighed < _SMALL}

    def _candidates(self, text: CleanText) -> list[int]:
        lowered = text.lowered
        places: set[int] = set()
        for anchor, rows in self._by_anchor.items():
            if anchor in lowered:
                places.update(rows)
        return sorted(places)


def anchors_of_rows(rows: Sequence[Signature]) -> dict[str, list[int]]:
    """The words that `OwnRows.anchors` describes, each with the places of its rows."""
    found: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        for anchor in dict.fromkeys(as_words(row.any).anchors) or ("",):
            found.setdefault(anchor, []).append(place)
    return found


class _Ready:
    __slots__ = ("about", "all", "any", "frames", "row", "unless")

    def __init__(self, row: Signature) -> None:
        self.row = row
        self.any = as_words(row.any)
        self.all = tuple(as_words(group) for group in row.all)
        self.about = tuple(as_words(group) for group in row.about)
        self.unless = as_words(row.unless) if row.unless else None
        self.frames = as_words(row.frames) if row.frames else None

    def find(self, text: CleanText, evidence: Evidence) -> Finding | None:
        row = self.row
        shown = self._show(text)
        if shown is None or any(text.find(words) is None for words in self.about):
            return None
        if self.unless is not None and text.find(self.unless) is not None:
            return None
        if self.frames is not None and self.frames.search(_called_in(evidence)) is None:
            return None
        beside = [text.find(words) for words in self.all]
        if None in beside or not _facts_allow(row, evidence):
            return None
        first, observation, confidence = shown
        seen = [observation, *(quote(one, "with it") for one in beside if one is not None)]
        return Finding(
            id=row.cause,
            confidence=confidence,
            severity=row.severity,
            title=_title(row.title, first),
            evidence=tuple(dict.fromkeys(seen)),
            explains=row.explains,
        )

    def _show(self, text: CleanText) -> tuple[Mention, Observation, float] | None:
        """The mention that matches one of `any`, its quote and confidence; None if a required share is too small."""
        if self.row.share:
            share = measured(text, self.any, self.row.fact)
            if share is None or share.percent < self.row.share:
                return None
            return share.line, share.seen, _APART if share.is_apart else self.row.confidence
        first = text.find(self.any)
        if first is not None and is_denied(text, first):
            first = next((one for one in text.find_all(self.any) if not is_denied(text, one)), None)
        return None if first is None else (first, quote(first, self.row.fact), self.row.confidence)


def _called_in(evidence: Evidence) -> Written:
    """The frames of the text's exceptions, one 'file function' line for each."""
    assert evidence.reading is not None
    errors = [error for chain in evidence.reading.failures for error in chain.errors]
    return Written("\n".join(f"{frame.file} {frame.function}" for error in errors for frame in error.frames))


def _facts_allow(row: Signature, evidence: Evidence) -> bool:
    machine = evidence.machine
    wanted = all(_holds(machine, path, value) for path, value in row.when_fact.items())
    return wanted and not any(_holds(machine, path, value) for path, value in row.unless_fact.items())


def _holds(machine: Machine, path: str, wanted: str) -> bool:
    value = fact_at(machine, path)
    if isinstance(value, Absent):
        return False
    return wanted == _KNOWN or (str(value).lower() if wanted in _GIVEN else str(value)) == wanted


def _title(template: str, first: Mention) -> str:
    """The row's own title, with {1} replaced by the first group of its pattern; '' if that group is empty."""
    if "{" not in template:
        return template
    groups = {str(number): read for number, read in enumerate(first.match.groups(), 1)}
    wanted = _GROUP.findall(template)
    if not all(groups.get(number) for number in wanted):
        return ""
    return _GROUP.sub(lambda named: groups[named[1]] or "", template)


def small_shares(text: CleanText) -> set[str]:
    """The causes whose share of the time a text states, if it is too small to matter."""
    return _matcher().small_shares(text)


@functools.cache
def _matcher() -> Matcher:
    return Matcher(OwnRows())


def finder(matcher: Matcher | None = None) -> Finder:
    """The rows as a finder; the project's own rows are read with the first text."""
    return Finder(id="signatures", find=lambda evidence: (matcher or _matcher()).find(evidence), reads="text")


FINDERS = (finder(),)
