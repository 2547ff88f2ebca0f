"""The causes by id, made of the rows of knowledge/causes; remedies are in the words of the evidence's system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from gpudoc.doctor.advice import ADVICE
from gpudoc.doctor.cards import selector
from gpudoc.doctor.model import Advise, Cause, Family, Remedy, Setting, Severity
from gpudoc.doctor.remedies import do, install, remove
from gpudoc.knowledge.cause_rows import parse_row
from gpudoc.knowledge.signature_rows import RowError

_KEYS = {"id", "title", "meaning", "why", "fix", "sources"}
_MORE_KEYS = {"family", "severity", "explains", "ruled_out_by"}
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
    return Cause(
        id=str(row["id"]),
        family=cast(Family, row.get("family", "environment")),
        severity=cast(Severity, row.get("severity", "broken")),
        title=str(row["title"]),
        meaning=str(row["meaning"]),
        why=str(row["why"]),
        fix=_advise(row["fix"]),
        sources=tuple(cast(Sequence[str], row["sources"])),
        explains=tuple(cast(Sequence[str], row.get("explains", ()))),
    )


def _advise(fix: object) -> Advise:
    """The steps of a row: a list, or one list for each packager or place that differs from `default`."""

    def advise(setting: Setting) -> tuple[Remedy, ...]:
        steps = fix
        if isinstance(fix, dict):
            steps = fix.get(setting.packager) or fix.get(setting.place) or fix[_DEFAULT]
        return take_steps(cast(Sequence[object], steps), setting)

    return advise


def take_steps(steps: Sequence[object], setting: Setting) -> tuple[Remedy, ...]:
    """The steps of a row in the words of the setting."""
    return tuple(remedy for step in steps for remedy in _remedies(step, setting))


def _remedies(step: object, setting: Setting) -> tuple[Remedy, ...]:
    """A text alone is what to do; with `advice`, the function of this name says it, given the step's other words.

    A step with `card` is for evidence that names the card, or does not: 'known', 'unknown'.
    """
    if isinstance(step, str):
        return (do(step),)
    words = dict(cast(Mapping[str, str], step))
    known = "known" if selector(setting.cards) else "unknown"
    if words.pop("card", known) != known:
        return ()
    if "advice" in words:
        return ADVICE[words.pop("advice")](setting, **words)
    run = _filled(words.get("run", ""), setting)
    return (do(words["say"], run, disruptive=words.get("disruptive") == "true"),)


def _filled(run: str, setting: Setting) -> str:
    """The command with the packager's words, the finding's cards (' -i 3', or nothing) and the known torch in it."""
    if "{" not in run:
        return run
    version = setting.torch_version.split("+")[0]
    words = {
        "{install} ": install(setting, ""),
        "{remove} ": remove(setting, ""),
        "{torch}": f"torch=={version}" if version else "torch",
        "{cards}": selector(setting.cards),
    }
    for word, meant in words.items():
        run = run.replace(word, meant)
    return run
