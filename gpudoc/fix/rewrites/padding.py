"""41: batches that are padded to the longest possible sequence, not to their own longest sequence."""

from __future__ import annotations

from dataclasses import dataclass, replace

import libcst as cst

from gpudoc.fix.model import Candidate, Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, insert_line, measured_lines
from gpudoc.fix.source import Node, Source
from gpudoc.fix.tree import Function, argument, below, called, calls, class_of, dotted, is_literal, qualified, words

ID = "pad-to-longest"
_LONGEST = "longest"
# functions that give an actual length: a batch made with one of these is as long as it must be
_OWN_LENGTH = frozenset({"max", "len", "amax", "size"})


@dataclass(frozen=True, slots=True)
class _Padded:
    """`ids = torch.full((n, length), PAD)`: the tensor, its padding, and its length as text."""

    name: str
    padding: str
    length: str


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for a collate function that fills tensors of fixed length, else for a model's input."""
    if not measured_lines(source, evidence):
        return []
    found = _in_collate(source)
    return found or _at_the_model(source, evidence)


def _in_collate(source: Source) -> list[Proposal]:
    found: list[Proposal] = []
    for function in _collating(source):
        lines = list(function.body.body)
        made = [one for one in _padded_in(source, function) if any(_fills(line, one.name) for line in lines)]
        if not made or len({one.length for one in made}) > 1:
            continue
        loop = [line for line in lines if any(_fills(line, one.name) for one in made)][-1]
        site = RewriteSite(ID, Claim.ROUNDING, source, loop)
        if _LONGEST in words(source):
            found.append(site.refuse(f"`{_LONGEST}` is a name of this file already"))
            continue
        found.append(_shorter(site, made))
    return found


def _at_the_model(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `model(ids)` if every sample of a batch was seen to end in the same number."""
    found: list[Proposal] = []
    for padded in evidence.padded:
        statement = source.statement_at(padded.line) if padded.file == source.path else None
        if padded.value is None or not isinstance(statement, cst.SimpleStatementLine):
            continue
        given = [name for call in calls(statement) if (name := _only_name(call)) is not None]
        if len(given) != 1:
            continue
        site = RewriteSite(ID, Claim.ROUNDING, source, statement)
        if _LONGEST in words(source):
            found.append(site.refuse(f"`{_LONGEST}` is a name of this file already"))
            continue
        indent, newline = source.indent(statement), source.newline(source.line(statement))
        text = newline.join(_cut(indent, [_Padded(given[0], str(padded.value), "")]))
        edit = insert_line(source, source.line(statement), text)
        found.append(site.change([edit], "The model gets batches as long as their longest sequence."))
    return found


def _only_name(call: cst.Call) -> str | None:
    """The variable that is the only argument of a call; None for other calls."""
    if len(call.args) != 1 or call.args[0].keyword is not None or call.args[0].star:
        return None
    value = call.args[0].value
    return value.value if isinstance(value, cst.Name) else None


def _collating(source: Source) -> list[Function]:
    """The collate functions of DataLoaders; for an object, its `__call__`."""
    given = [
        arg.value
        for call in calls(source.module)
        if called(call).endswith("DataLoader") and (arg := argument(call, "collate_fn")) is not None
    ]
    names = {dotted(one.func if isinstance(one, cst.Call) else one).rpartition(".")[2] for one in given}
    # `collate = Collator(vocab)`
    for one in source.nodes:
        if isinstance(one, cst.Assign) and isinstance(one.value, cst.Call):
            names |= {called(one.value) for target in one.targets if dotted(target.target) in names}
    return [one for one in source.nodes if isinstance(one, cst.FunctionDef) and _is_one_of(source, one, names)]


def _is_one_of(source: Source, function: Function, names: set[str]) -> bool:
    owner = class_of(source, function)
    return (owner.name.value if owner is not None and function.name.value == "__call__" else function.name.value) in (
        names
    )


def _padded_in(source: Source, function: Function) -> list[_Padded]:
    """The two-dimensional tensors that a function makes at its top level, filled with one number."""
    made = []
    for line in function.body.body:
        parts = line.body if isinstance(line, cst.SimpleStatementLine) else ()
        for part in parts:
            if isinstance(part, cst.Assign) and len(part.targets) == 1 and isinstance(part.value, cst.Call):
                found = _padded(source, part.targets[0].target, part.value)
                if found is not None:
                    made.append(found)
    return made


def _padded(source: Source, target: Node, call: cst.Call) -> _Padded | None:
    full = qualified(source, call.func)
    sizes, padding = [one.value for one in call.args if one.keyword is None and not one.star], "0"
    if full == "torch.full":
        value = argument(call, "fill_value", 1)
        if value is None or not (is_literal(value.value) or dotted(value.value)):
            return None
        sizes, padding = sizes[:1], source.code(value.value)
    elif full != "torch.zeros":
        return None
    if len(sizes) == 1 and isinstance(sizes[0], cst.Tuple | cst.List):
        sizes = [one.value for one in sizes[0].elements if isinstance(one, cst.Element)]
    if len(sizes) != 2 or not isinstance(target, cst.Name):
        return None
    is_own = any(isinstance(one, cst.Call) and called(one) in _OWN_LENGTH for one in below(sizes[1]))
    return None if is_own or not _is_fixed(sizes[1]) else _Padded(target.value, padding, source.code(sizes[1]))


def _is_fixed(length: Node) -> bool:
    """Whether a length is `MAX_LEN`, `self.max_len` or 128: by its name a maximum, not the longest of a batch."""
    name = dotted(length).rpartition(".")[2].lower()
    return is_literal(length) or dotted(length).startswith("self.") or dotted(length).isupper() or "max_" in name


def _fills(line: Node, name: str) -> bool:
    """Whether a loop writes the beginning of a tensor's rows: `ids[i, :n] = ...`."""
    targets = [
        target.target
        for one in below(line)
        if isinstance(line, cst.For) and isinstance(one, cst.Assign)
        for target in one.targets
    ]
    return any(
        isinstance(target, cst.Subscript)
        and dotted(target.value) == name
        and isinstance(part := target.slice[-1].slice, cst.Slice)
        and part.lower is None
        and part.upper is not None
        for target in targets
    )


def _shorter(site: RewriteSite, made: list[_Padded]) -> Candidate:
    source, loop = site.source, site.node
    indent, newline = source.indent(loop), source.newline(source.line(loop))
    edit = insert_line(source, source.last_line(loop) + 1, newline.join(_cut(indent, made)))
    found = site.change([edit], "Batches are as long as their longest sequence, not all of one length.")
    return replace(found, other_batches=True)


def _cut(indent: str, made: list[_Padded]) -> list[str]:
    """The lines that cut these tensors after the last place where one of them holds more than padding."""
    filled = [f"({one.name} != {one.padding}).any(0)" for one in made]
    places = filled[0] if len(filled) == 1 else f"({' | '.join(filled)})"
    return [
        f"{indent}{_LONGEST} = 1 + max({places}.nonzero().flatten().tolist(), default=0)",
        *(f"{indent}{one.name} = {one.name}[:, :{_LONGEST}]" for one in made),
    ]


PAD_TO_LONGEST = Rewrite(ID, 41, Claim.ROUNDING, find)
