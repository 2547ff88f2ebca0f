"""Checks a user's YAML file against a model: reports every mistake with its line and key, all at once."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from gpudoc.errors import GpudocError
from gpudoc.reading import UnreadableError
from gpudoc.yaml_files import Location, YamlDocument, read_yaml

_SHOWN = 12
_PLAINER = {
    "invalid-json-value": "neither text nor a number, a list or a mapping; put quotes around it",
    "invalid_key": "a key that is not text; put quotes around it",
}

Model = TypeVar("Model", bound=BaseModel)


def read_document(path: Path, what: str) -> YamlDocument:
    """The YAML in `path`; GpudocError naming file, line and column if it cannot be read."""
    try:
        return read_yaml(path, what)
    except UnreadableError as problem:
        if not os.path.exists(path):  # noqa: PTH110 - a name may be too long to ask
            problem.hint = _similar_files(path)
        raise


def validate(document: YamlDocument, data: object, model: type[Model], what: str) -> Model:
    """`data` as `model`; otherwise one GpudocError that lists every mistake with line, key and nearest valid name."""
    if not isinstance(data, Mapping):
        raise GpudocError(f"{document.name}:1: a {what} is a mapping of keys, not {type(data).__name__}")
    try:
        return model.model_validate(data)
    except ValidationError as problem:
        mistakes = [_describe(document, model, dict(error)) for error in problem.errors(include_url=False)]
    except RecursionError:
        mistakes = [(f"{document.name}:1: ", "nested too deeply")]
    shown = sorted(_join_branches(mistakes), key=_by_line)
    more = [f"... and {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    count = "1 mistake" if len(shown) == 1 else f"{len(shown)} mistakes"
    listed = "\n  ".join((f"{count} in {document.name}", *shown[:_SHOWN], *more))
    raise GpudocError(listed)


def nearest(name: str, allowed: Sequence[str]) -> str:
    """'; did you mean X?' or '; allowed: ...' for a name that is not among `allowed`."""
    close = difflib.get_close_matches(name, allowed, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; allowed: {', '.join(allowed)}"


def _similar_files(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml")]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.5)
    return f"{path.parent / close[0]} exists" if close else ""


def _describe(document: YamlDocument, model: type[BaseModel], error: Mapping[str, object]) -> tuple[str, str]:
    """The place of a mistake ('file:line: key: ') and its text, separate so that a union's branches can be joined."""
    raw = error["loc"]
    location = tuple(part for part in raw if isinstance(part, str | int)) if isinstance(raw, tuple) else ()
    names_a_key = error["type"] in ("extra_forbidden", "missing")
    in_file = _as_written(document, location, keep_last=names_a_key)
    place = f"{document.name}:{document.line_of(in_file)}"
    key = ".".join(str(part) for part in in_file) or "the file"
    if error["type"] == "extra_forbidden":
        return f"{place}: ", f"unknown key {key!r}{nearest(str(location[-1]), _allowed_names(model, location[:-1]))}"
    if error["type"] == "missing":
        return f"{place}: ", f"{key} is missing"
    message = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    if not str(error["msg"]).startswith("Input should be "):
        return f"{place}: {key}: ", _PLAINER.get(str(error["type"]), message)
    return f"{place}: {key}: {_shown(error.get('input'))}should be ", message


def _shown(value: object) -> str:
    return f"{str(value)[:60]!r} " if isinstance(value, str | int | float | bool) else ""


def _join_branches(mistakes: Iterable[tuple[str, str]]) -> list[str]:
    joined: dict[str, list[str]] = {}
    for place, message in mistakes:
        messages = joined.setdefault(place, [])
        if message not in messages:
            messages.append(message)
    together = {
        place: [" or ".join(found)] if place.endswith("should be ") else found for place, found in joined.items()
    }
    return [place + message for place, found in together.items() for message in found]


def _as_written(document: YamlDocument, location: Location, *, keep_last: bool) -> Location:
    """`location` without the parts that pydantic adds for the branches of a union, which are not in the file."""
    kept: Location = ()
    for index, part in enumerate(location):
        if (*kept, part) in document.lines or (keep_last and index == len(location) - 1):
            kept = (*kept, part)
    return kept


def _allowed_names(model: type[BaseModel], location: Location) -> list[str]:
    current: type[BaseModel] = model
    for part in location:
        field = current.model_fields.get(str(part))
        if field is None:
            continue
        inner = _models_in(field.annotation)
        if not inner:
            break
        current = inner[0]
    return list(current.model_fields)


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in getattr(annotation, "__args__", ()) for found in _models_in(part)]


def _by_line(mistake: str) -> tuple[int, str]:
    parts = mistake.split(":")
    return (int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else 0, mistake)
