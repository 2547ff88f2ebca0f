"""A source file that keeps every byte: its tree, the node of a line, one change, and the diff for `patch -p1`."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider, WhitespaceInclusivePositionProvider

from gpudoc.patterns import IGNORECASE, Pattern
from gpudoc.reading import UnreadableError, read_bytes

MOST_HUNK_LINES = 12
_MOST_BYTES = 1 << 20
# the tree of a longer file takes many seconds on one core
_MOST_LINES = 8_000
_LINE = Pattern(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_WRITTEN = Pattern(r"[^\n]*\n|[^\n]+")
_GENERATED = Pattern(
    r"@generated|do not edit|auto-?generated|(?:this )?(?:file|code) (?:was|is) generated|^\W*generated (?:by|from) ",
    IGNORECASE,
)
_CODING = Pattern(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
Node = cst.CSTNode


class UnfixableError(Exception):
    """A file that no rewrite may touch; the text says why, as a sentence without the file's name."""


@dataclass(frozen=True, slots=True)
class Edit:
    """`text` replaces the characters from `start` up to, but not including, `end`."""

    start: int
    end: int
    text: str


@dataclass(eq=False, slots=True)
class Source:
    """One file with its tree; offsets count the characters of `text`, lines count from 1."""

    path: Path
    text: str
    module: cst.Module
    _positions: dict[Node, tuple[int, int]] = field(repr=False)
    _outer: dict[Node, tuple[int, int]] = field(repr=False)
    _parents: Mapping[Node, Node] = field(repr=False)
    _starts: list[int] = field(repr=False)
    nodes: tuple[Node, ...] = field(repr=False)
    """Every node in the order of the text."""
    _heads: list[tuple[int, int, Node]] = field(default_factory=list, repr=False)

    def span(self, node: Node) -> tuple[int, int]:
        """The first character of `node` and the one after its end, without its own parentheses."""
        return self._positions[node]

    def outer_span(self, node: Node) -> tuple[int, int]:
        """Like `span`, but with the node's own parentheses."""
        return self._outer[node] if isinstance(node, cst.BaseExpression) else self._positions[node]

    def code(self, node: Node) -> str:
        """The source text of `node`, with its own parentheses."""
        start, end = self.outer_span(node)
        return self.text[start:end]

    def parent(self, node: Node) -> Node | None:
        """The node around `node`; None for the module."""
        return self._parents.get(node)

    def ancestors(self, node: Node) -> Iterator[Node]:
        """The nodes around `node`, from the inside out."""
        above = self._parents.get(node)
        while above is not None:
            yield above
            above = self._parents.get(above)

    def line(self, node: Node) -> int:
        """The line on which `node` begins."""
        return self.line_at(self.span(node)[0])

    def last_line(self, node: Node) -> int:
        """The line on which `node` ends."""
        start, end = self.span(node)
        return self.line_at(max(start, end - 1))

    def line_at(self, offset: int) -> int:
        """The line that holds the character at `offset`."""
        low, high = 0, len(self._starts)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._starts[middle] <= offset else (low, middle)
        return low + 1

    def line_start(self, line: int) -> int:
        """The offset of the first character of `line`; the end of the text if there is no such line."""
        return self._starts[line - 1] if line <= len(self._starts) else len(self.text)

    def line_text(self, line: int) -> str:
        """`line` with its line ending."""
        return self.text[self.line_start(line) : self.line_start(line + 1)]

    def indent(self, node: Node) -> str:
        """The white space in front of the line on which `node` begins."""
        text = self.line_text(self.line(node))
        return text[: len(text) - len(text.lstrip(" \t\f"))]

    def newline(self, line: int) -> str:
        """The line ending of `line`; that of the file's first line if `line` has none."""
        for text in (self.line_text(line), self.line_text(1)):
            for ending in ("\r\n", "\n", "\r"):
                if text.endswith(ending):
                    return ending
        return "\n"

    def statement_at(self, line: int) -> Node | None:
        """The smallest statement that a frame at `line` may be in: a simple line, or the head of a block."""
        if not self._heads and self.nodes:
            self._heads.extend(self._statement_lines())
        best: tuple[int, int, Node] | None = None
        for one in self._heads:
            if one[0] <= line <= one[1] and (best is None or one[0] >= best[0]):
                best = one
        return best[2] if best is not None else None

    def _statement_lines(self) -> Iterator[tuple[int, int, Node]]:
        for node in self.nodes:
            if isinstance(node, cst.SimpleStatementLine):
                yield self.line(node), self.last_line(node), node
            elif isinstance(node, cst.BaseCompoundStatement) and hasattr(node, "body"):
                last = max(self.span(node)[0], self._positions[node.body][0] - 1)
                yield self.line(node), self.line_at(last), node

    def changed(self, edits: Sequence[Edit]) -> str:
        """The text after `edits`, which must not overlap; two edits at one place keep their order."""
        text, last = self.text, len(self.text) + 1
        order = sorted(enumerate(edits), key=lambda one: (one[1].start, one[1].end, one[0]), reverse=True)
        for _, edit in order:
            assert edit.start <= edit.end <= last, "edits overlap"
            text = text[: edit.start] + edit.text + text[edit.end :]
            last = edit.start
        return text


def read_source(path: Path) -> Source:
    """The file at `path` as a tree; UnfixableError if none of its lines may be changed."""
    try:
        data = read_bytes(path, "Python", most_bytes=_MOST_BYTES)
    except UnreadableError as problem:
        raise UnfixableError(problem.reason) from None
    return parse_source(path, data)


def parse_source(path: Path, data: bytes) -> Source:
    """Like `read_source`, for bytes that are already read."""
    if path.suffix == ".ipynb":
        raise UnfixableError("it is a notebook, and only plain Python files can be changed")
    for line in data.splitlines()[:2]:
        found = _CODING.match(line.decode("latin-1"))
        if found and found[1].lower().replace("_", "-") not in ("utf-8", "utf8", "ascii", "us-ascii"):
            raise UnfixableError(f"its encoding is {found[1]}, not in UTF-8")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise UnfixableError(f"it is not UTF-8 text (byte {problem.start})") from None
    if text.count("\n") + text.count("\r") > 2 * _MOST_LINES:
        raise UnfixableError(f"it is too large: more than {_MOST_LINES:,} lines")
    comments = [line for line in text.splitlines()[:15] if line.lstrip("\ufeff \t").startswith(("#", '"""'))]
    if any(_GENERATED.search(line) for line in comments):
        raise UnfixableError("its first lines say that it is generated, so a change would be lost the next time")
    _compiles(path, text)
    mark = len(text) - len(text.lstrip("\ufeff"))
    try:
        module = cst.parse_module(text[mark:])
    except (cst.ParserSyntaxError, RecursionError) as problem:
        reason = f"line {problem.raw_line}" if isinstance(problem, cst.ParserSyntaxError) else "nested too deeply"
        raise UnfixableError(f"its syntax cannot be read ({reason})") from None
    if module.code != text[mark:]:
        raise UnfixableError("its syntax tree does not reproduce the same text")
    return _with_positions(path, text, module, mark)


def _compiles(path: Path, text: str) -> None:
    try:
        compile(text.lstrip("\ufeff"), str(path), "exec", dont_inherit=True)
    except SyntaxError as problem:
        raise UnfixableError(
            f"this Python cannot read its line {problem.lineno} ({problem.msg}); is it written for another version?"
        ) from None
    except (ValueError, RecursionError, MemoryError) as problem:
        raise UnfixableError(f"this Python cannot read it ({problem})") from None


def _with_positions(path: Path, text: str, module: cst.Module, mark: int) -> Source:
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    found = wrapper.resolve_many([PositionProvider, WhitespaceInclusivePositionProvider, ParentNodeProvider])
    starts = [line.start() for line in _LINE.finditer(text)]
    if len(starts) > 1 and starts[-1] == len(text):
        starts.pop()

    def offsets(ranges: object) -> dict[Node, tuple[int, int]]:
        assert isinstance(ranges, Mapping)
        result = {}
        for node, place in ranges.items():
            begin, end = place.start, place.end
            first = (starts[begin.line - 1] if begin.line <= len(starts) else len(text)) + begin.column
            last = (starts[end.line - 1] if end.line <= len(starts) else len(text)) + end.column
            # a byte order mark is a character of the first line, but is not in the tree
            result[node] = (first + mark * (begin.line == 1), last + mark * (end.line == 1))
        return result

    positions, outer = offsets(found[PositionProvider]), offsets(found[WhitespaceInclusivePositionProvider])
    parents = {node: above for node, above in found[ParentNodeProvider].items() if isinstance(above, cst.CSTNode)}
    nodes = tuple(node for node in _walk(module) if node in positions)
    return Source(path, text, module, positions, outer, parents, starts, nodes)


@functools.lru_cache(maxsize=200_000)
def children_of(node: Node) -> tuple[Node, ...]:
    """The direct children of a node, cached because libcst visits the node on each query."""
    return tuple(node.children)


def _walk(node: Node) -> Iterator[Node]:
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children_of(top)))


def changed_lines(before: str, after: str) -> int:
    """The number of lines that a diff of two texts removes and adds."""
    pieces = difflib.SequenceMatcher(None, _lines(before), _lines(after), autojunk=False).get_opcodes()
    return sum(b - a + d - c for kind, a, b, c, d in pieces if kind != "equal")


def unified_diff(name: str, before: str, after: str) -> bytes:
    """The input for `patch -p1` in the folder that `name` is relative to; `patch -p1 -R` restores `before`."""
    pieces: list[str] = []
    for line in difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}"):
        pieces.append(line)
        if not line.endswith(("\n", "\r")):
            pieces.append("\n\\ No newline at end of file\n")
    return "".join(pieces).encode("utf-8")


def _lines(text: str) -> list[str]:
    # unlike in str.splitlines, a form feed or a line separator inside a string does not end a line
    return _WRITTEN.findall(text)
