"""Reading a YAML file a person wrote: size, encoding, syntax and unknown keys, each with its line, all at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, Union

import yaml
from pydantic import BaseModel, ValidationError

from gpudoc.errors import GpudocError

MAX_BYTES = 1 << 20
MAX_DEPTH = 40
_SHOWN = 12

Location = tuple[Union[str, int], ...]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data out of a YAML file, and the line on which each key stands."""

    name: str
    data: object
    lines: Mapping[Location, int]

    def line_of(self, location: Location) -> int:
        """The line of `location` or of the nearest parent that has one; 1 when none has."""
        for length in range(len(location), -1, -1):
            if location[:length] in self.lines:
                return self.lines[location[:length]]
        return 1


def read_document(path: Path, what: str) -> Document:
    """The YAML in `path`; GpudocError naming file and line when it cannot be read. `what` names the kind of file."""
    return parse_document(_read_text(path, what), str(path), what)


def parse_document(text: str, name: str, what: str) -> Document:
    """The YAML in `text`; GpudocError with the line when it is not YAML."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise GpudocError(f"{name}: this {what} is empty", hint="see `gpudoc tune --help` for an example")
        lines: dict[Location, int] = {}
        _collect_lines(node, (), lines)
        data = loader.construct_document(node)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        place = f"{name}:{mark.line + 1}" if mark else name
        raise GpudocError(f"{place}: not YAML: {problem.problem or problem.context}") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as problem:
        raise GpudocError(f"{name}: not YAML: {problem}") from None
    finally:
        loader.dispose()
    return Document(name, data, lines)


def validate(document: Document, data: object, model: type[Model], what: str) -> Model:
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


def _read_text(path: Path, what: str) -> str:
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise GpudocError(f"{path}: a folder, not a {what} file")
        if size > MAX_BYTES:
            raise GpudocError(f"{path}: {size:,} bytes; a {what} is at most 1 MiB", hint="is this the right file?")
        raw = path.read_bytes()
    except FileNotFoundError:
        raise GpudocError(f"{path}: no such {what} file", hint=_similar_files(path)) from None
    except OSError as problem:
        raise GpudocError(f"{path}: cannot be read: {problem.strerror or problem}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise GpudocError(f"{path}: not UTF-8 text (byte {problem.start})", hint="is this the right file?") from None
    if "\0" in text:
        raise GpudocError(f"{path}: binary, not a {what}", hint="is this the right file?")
    return text


def _similar_files(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml")]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.5)
    return f"{path.parent / close[0]} exists" if close else ""


def _collect_lines(node: yaml.Node, location: Location, lines: dict[Location, int]) -> None:
    if len(location) > MAX_DEPTH:
        raise ValueError("nested too deeply")
    lines.setdefault(location, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen and name != "<<":
                raise yaml.MarkedYAMLError(problem=f"the key {name!r} stands twice", problem_mark=key.start_mark)
            seen.add(name)
            inner = (*location, name)
            lines[inner] = key.start_mark.line + 1
            _collect_lines(value, inner, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _collect_lines(value, (*location, index), lines)


def _describe(document: Document, model: type[BaseModel], error: Mapping[str, object]) -> tuple[str, str]:
    """Where a mistake stands ('file:line: key: ') and what it is, apart, so that a union's branches can be joined."""
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
    if error["type"] == "value_error":
        return f"{place}: {key}: ", message
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


def _as_written(document: Document, location: Location, *, keep_last: bool) -> Location:
    """`location` without the parts pydantic adds for the branches of a union, which stand in no file."""
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
    return (int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0, mistake)
