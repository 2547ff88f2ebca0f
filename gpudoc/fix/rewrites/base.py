"""The form of a rewrite, and helpers that make its candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import libcst as cst

from gpudoc.fix.model import Candidate, Claim, Refusal, RunEvidence
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import dotted, imported_names, name_of_import

Proposal = Candidate | Refusal


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One kind of change: how to find its places by evidence and tree, and the best claim that it may have."""

    id: str
    number: int
    claim: Claim
    find: Callable[[Source, RunEvidence], list[Proposal]]
    """The changes and refusals in one file; it looks only at lines that the evidence names."""


@dataclass(frozen=True, slots=True)
class RewriteSite:
    """One place in one file that a rewrite fits."""

    rewrite: str
    claim: Claim
    source: Source
    node: Node

    def change(self, edits: Sequence[Edit], *besides: str) -> Candidate:
        """The candidate with these edits."""
        text, source = self.source.text, self.source
        line = source.line(self.node)
        return Candidate(self.rewrite, source.path, line, self.claim, text, source.changed(edits), besides)

    def refuse(self, reason: str) -> Refusal:
        """The refusal at this place."""
        return Refusal(self.rewrite, self.source.path, self.source.line(self.node), reason)


def measured_lines(source: Source, evidence: RunEvidence, *, least: float = 0.05) -> list[int]:
    """The lines of a file that take at least `least` of a step, and the line that died, the most important first."""
    lines = [hot.line for hot in evidence.lines_in(source.path, least=least)]
    if evidence.died_at is not None and evidence.died_at.file == source.path:
        lines.insert(0, evidence.died_at.line)
    return list(dict.fromkeys(lines))


def statements(source: Source, lines: Sequence[int]) -> list[Node]:
    """The statements at these lines, each once."""
    found = [source.statement_at(line) for line in lines]
    return list(dict.fromkeys(node for node in found if node is not None))


def replace(source: Source, node: Node, text: str) -> Edit:
    """The edit that puts `text` in place of a node and its parentheses."""
    start, end = source.outer_span(node)
    return Edit(start, end, text)


def drop_argument(source: Source, call: cst.Call, arg: cst.Arg) -> Edit:
    """The edit that removes an argument from a call."""
    index = call.args.index(arg)
    start, end = source.outer_span(arg.keyword or arg.value)[0], source.outer_span(arg.value)[1]
    if index + 1 < len(call.args):
        after = call.args[index + 1]
        end = source.outer_span(after.keyword or after.value)[0]
    elif index:
        start = source.outer_span(call.args[index - 1].value)[1]
    elif isinstance(arg.comma, cst.Comma):
        end = source.text.index(",", end) + 1
    return Edit(start, end, "")


def add_argument(source: Source, call: cst.Call, text: str) -> Edit:
    """The edit that adds an argument at the end of a call, on its own line if the last argument has its own line."""
    if not call.args:
        # the closing parenthesis is the last character of a call
        end = source.span(call)[1] - 1
        return Edit(end, end, text)
    last = call.args[-1]
    end = source.outer_span(last.value)[1]
    line = source.line_at(end - 1)
    first = source.outer_span(last.keyword or last.value)[0]
    alone = (
        source.line_at(first) != source.line(call)
        and not source.text[source.line_start(source.line_at(first)) : first].strip()
    )
    between = (
        "," + source.newline(line) + source.text[source.line_start(source.line_at(first)) : first] if alone else ", "
    )
    if isinstance(last.comma, cst.Comma) and alone:
        # `last,` ends its line: the new line follows it and also ends with a comma
        end = source.text.index(",", end) + 1
        return Edit(end, end, f"{between[1:]}{text},")
    return Edit(end, end, between + text)


def insert_line(source: Source, line: int, text: str) -> Edit:
    """The edit that inserts a new line before `line`."""
    start = source.line_start(line)
    front = "" if start == 0 or source.text[start - 1] in "\r\n" else source.newline(line - 1)
    return Edit(start, start, front + text + source.newline(max(1, line - 1)))


def indented(source: Source, node: Node, by: str) -> list[Edit] | None:
    """The edits that indent all lines of a statement by `by`; None if a string of several lines would change."""
    for one in _texts(node):
        if source.line(one) != source.last_line(one):
            return None
    lines = range(source.line(node), source.last_line(node) + 1)
    return [Edit(source.line_start(n), source.line_start(n), by) for n in lines if source.line_text(n).strip()]


def _texts(node: Node) -> list[Node]:
    from gpudoc.fix.tree import below

    return [one for one in below(node) if isinstance(one, cst.SimpleString | cst.FormattedString)]


def step_of_indent(source: Source) -> str:
    """The text of one level of indentation in this file."""
    default = source.module.default_indent
    return default if default.strip() == "" and default else "    "


def torch_name(source: Source) -> str:
    """The name that this file uses for `torch`; '' if it does not import it."""
    return name_of_import(source, "torch")


def import_edits(source: Source, name: str) -> list[Edit] | None:
    """The edits that add a missing `import name` above the file's first import; None if the file imports nothing."""
    if imported_names(source).get(name) == name:
        return []
    first = next((one for one in source.nodes if _is_plain_import(source, one)), None)
    return None if first is None else [insert_line(source, source.line(first), f"import {name}")]


def _is_plain_import(source: Source, node: Node) -> bool:
    if not isinstance(node, cst.Import | cst.ImportFrom):
        return False
    line = source.parent(node)
    future = isinstance(node, cst.ImportFrom) and dotted(node.module) == "__future__"
    return line is not None and source.parent(line) is source.module and not future
