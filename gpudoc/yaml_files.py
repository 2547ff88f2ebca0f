"""YAML that a person wrote or saved, within bounds; a mistake in it is named by file, line and column."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Union

import yaml

from gpudoc.frozen import dataclass
from gpudoc.patterns import Pattern
from gpudoc.reading import UnreadableError, read_text
from gpudoc.shell import quote_path

MAX_DEPTH = 40
# aliases of aliases grow exponentially: a file of one kilobyte may stand for more values than memory holds
MOST_VALUES = 100_000
# values written in full: more than a profile of the longest search has, and as many as are read in a second
MOST_WRITTEN = 20_000
# training never uses a longer number, and Python refuses to write one
_LONGEST_NUMBER = 40
_INTEGER = "tag:yaml.org,2002:int"
# an escape can name half of a surrogate pair, which no file can hold
_HALF_CHARACTER = Pattern("[\ud800-\udfff]")
_DEEP = f"nested too deeply: more than {MAX_DEPTH} levels"
_TABS = "cannot start any token"

Location = tuple[Union[str, int], ...]


class _BoundError(ValueError):
    """Valid YAML that goes beyond the bounds of our files."""


class _Loader(yaml.SafeLoader):
    """Reads `1e-3` and `1.5e3` as numbers, as everywhere else; YAML 1.1 takes them for text and wants `1.0e-3`."""


class _Dumper(yaml.SafeDumper):
    """Puts quotes around a text that `_Loader` would take for a number."""


# only few digits, so that a hash with one `e` between digits stays a text
_EXPONENT = Pattern(r"[-+]?(?:[0-9]{1,3}|[0-9]{1,8}\.[0-9]{0,8}|\.[0-9]{1,8})[eE][-+]?[0-9]{1,2}$")
for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))


@dataclass(frozen=True, slots=True)
class YamlDocument:
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


def read_yaml(path: Path, what: str) -> YamlDocument:
    """The YAML in `path`; UnreadableError naming file, line and column when it cannot be read."""
    return parse_yaml(read_text(path, what), str(path), what)


def parse_yaml(text: str, name: str, what: str) -> YamlDocument:
    """The YAML in `text`; UnreadableError with line and column if it is not YAML, or goes beyond the bounds."""
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as problem:
        raise _control_character(text, name, what, problem.position) from None
    walk = _Walk()
    try:
        _bound_values(text)
        node = loader.get_single_node()
        if node is None:
            raise UnreadableError(name, f"this {what} is empty", hint="see `gpudoc tune --help` for an example")
        walk.visit(node, ())
        data = loader.construct_document(node)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        reason = problem.problem or problem.context or "unreadable"
        hint = "indent with spaces: YAML allows no tab there" if _TABS in reason and "\\t" in reason else ""
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise UnreadableError(name, f"not YAML: {reason}", hint=hint, line=line, column=column) from None
    except (_BoundError, RecursionError) as problem:
        reason = str(problem) if isinstance(problem, _BoundError) else _DEEP
        hint = f"is this the right file? gpudoc reads a {what} of a size that people write"
        raise UnreadableError(name, reason, hint=hint, line=walk.line or loader.line + 1) from None
    except (yaml.YAMLError, ValueError, OverflowError) as problem:
        raise UnreadableError(name, f"not YAML: {problem}", line=walk.line or loader.line + 1) from None
    finally:
        loader.dispose()
    return YamlDocument(name, data, walk.lines)


def dump_yaml(data: object, *, width: int = 80) -> str:
    """`data` as YAML that `parse_yaml` reads as the same data, keys in their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)


def _bound_values(text: str) -> None:
    """Raise _BoundError for more values than any of our files holds, before a slow loader builds them all."""
    # each value takes at least a character and a separator
    if len(text) <= 2 * MOST_WRITTEN:
        return
    count = 0
    with contextlib.suppress(yaml.YAMLError):
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            count += isinstance(event, yaml.NodeEvent)
            if count > MOST_WRITTEN:
                raise _BoundError(f"too large: it contains more than {MOST_WRITTEN:,} values")


def _control_character(text: str, name: str, what: str, position: int) -> UnreadableError:
    line = text.count("\n", 0, position) + 1
    character = text[position]
    reason = f"a control character (0x{ord(character):02x}), which no YAML may hold"
    if character == "\0":
        reason = f"binary (a zero byte), not a {what}"
    return UnreadableError(
        name,
        reason,
        hint=f"delete it; editors may not show it, this does: sed -n {line}l {quote_path(name)}",
        line=line,
        column=position - text.rfind("\n", 0, position),
    )


@dataclass(slots=True)
class _Walk:
    """One pass over the nodes as they will be built, with each use of an alias: it limits what they may stand for."""

    lines: dict[Location, int] = field(default_factory=dict)
    line: int = 0
    _values: int = 0

    def visit(self, node: yaml.Node, location: Location) -> None:
        """Check one node and all below it; _BoundError or MarkedYAMLError at the first that is not allowed."""
        self.line = node.start_mark.line + 1
        self._values += 1
        if len(location) > MAX_DEPTH:
            raise _BoundError(_DEEP)
        if self._values > MOST_VALUES:
            raise _BoundError(f"too large: its aliases stand for more than {MOST_VALUES:,} values")
        self.lines.setdefault(location, self.line)
        if isinstance(node, yaml.MappingNode):
            self._visit_mapping(node, location)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self.visit(value, (*location, index))
        elif node.tag == _INTEGER and len(node.value) > _LONGEST_NUMBER:
            text = f"a number with {len(node.value)} digits"
            raise yaml.MarkedYAMLError(problem=text, problem_mark=node.start_mark)
        elif _HALF_CHARACTER.search(node.value):
            raise yaml.MarkedYAMLError(problem="an escape that encodes half a character", problem_mark=node.start_mark)

    def _visit_mapping(self, node: yaml.MappingNode, location: Location) -> None:
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
            if name in seen and name != "<<":
                raise yaml.MarkedYAMLError(problem=f"the key {name!r} occurs twice", problem_mark=key.start_mark)
            seen.add(name)
            inner = (*location, name)
            self.lines[inner] = key.start_mark.line + 1
            self.visit(value, inner)
