"""The causes by id, made of the rows of knowledge/causes; remedies are in the words of the evidence's system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from gpudoc.doctor.model import Advise, Cause, Finding, Remedy, Setting
from gpudoc.doctor.remedies import take_steps
from gpudoc.knowledge.cause_rows import parse_row
from gpudoc.knowledge.signature_rows import RowError

_KEYS = {"id", "title", "meaning", "why", "fix", "sources"}
_RULED_OUT = "ruled_out_by"
_MORE_KEYS = {"family", "severity", "explains", _RULED_OUT}
_DEFAULT = "default"


class Catalogue(Mapping[str, Cause]):
    """Every cause by its id, in the order of the areas; a row is parsed when it is asked for."""

    def __init__(self, rows: Mapping[str, Mapping[str, str]]) -> None:
        self._texts = {cause_id: text for of_area in rows.values() for cause_id, text in of_area.items()}
        self._causes: dict[str, Cause] = {}

    def __getitem__(self, cause_id: str) -> Cause:
        if cause_id not in self._causes:
            self._causes[cause_id] = _cause(parse_row(self._texts[cause_id]))
        return self._causes[cause_id]

    def __contains__(self, cause_id: object) -> bool:
        return cause_id in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def _cause(row: Mapping[str, object]) -> Cause:
    if wrong := (row.keys() ^ _KEYS) - _MORE_KEYS:
        raise RowError(f"knowledge/causes: {row['id']}: lacks or does not know {', '.join(sorted(wrong))}")
    told = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items() if key != _RULED_OUT}
    return Cause(**cast(dict[str, Any], {**told, "fix": _advise(row["fix"])}))


def _advise(fix: object) -> Advise:
    """The steps of a row: a list, or one list for each packager or place that differs from `default`."""

    def advise(setting: Setting) -> tuple[Remedy, ...]:
        steps = fix
        if isinstance(fix, dict):
            steps = fix.get(setting.packager) or fix.get(setting.place) or fix[_DEFAULT]
        return take_steps(cast(Sequence[object], steps), setting)

    return advise


def fill(finding: Finding, catalogue: Mapping[str, Cause], setting: Setting) -> Finding:
    """The finding with what its cause's row says where it says nothing itself: title, reason, steps and source."""
    cause = catalogue.get(finding.id)
    if cause is None:
        return finding
    return replace(
        finding,
        title=finding.title or cause.title,
        why=finding.why or cause.why,
        fix=finding.fix or (finding.advise or cause.fix)(replace(setting, cards=finding.cards)),
        url=finding.url or (cause.sources[0] if cause.sources else ""),
    )
