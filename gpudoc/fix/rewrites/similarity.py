"""42: similarities of all pairs through a table of pairs of vectors, although one matrix product gives them."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import Proposal, Rewrite, RewriteSite, measured_lines, replace, statements, torch_name
from gpudoc.fix.source import Source
from gpudoc.fix.tree import argument, bindings, called, calls, dotted, is_whole, name_of_import, qualified

ID = "pairs-by-product"
_SIMILARITY = frozenset({"torch.nn.functional.cosine_similarity", "torch.cosine_similarity"})
_FEATURES = ("-1", "2")


def find(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for a measured `cosine_similarity(a.unsqueeze(1), b.unsqueeze(0), dim=-1)`."""
    found: list[Proposal] = []
    for statement in statements(source, measured_lines(source, evidence)):
        for call in calls(statement) if isinstance(statement, cst.SimpleStatementLine) else ():
            pair = _pair(source, call) if _is_over_features(source, call) else None
            if pair is not None:
                found.append(_product(source, call, *pair))
    return found


def _is_over_features(source: Source, call: cst.Call) -> bool:
    """Whether a call is a cosine similarity over the last of three dimensions."""
    if qualified(source, call.func) in _SIMILARITY:
        along, others = argument(call, "dim", 2), len(call.args) != 3
    else:
        name = dotted(call.func)
        made = [one for one in bindings(source.module, name) if isinstance(one, cst.Assign)] if name else []
        setup = made[0].value if len(made) == 1 and isinstance(made[0].value, cst.Call) else None
        if setup is None or qualified(source, setup.func) != "torch.nn.CosineSimilarity":
            return False
        along, others = argument(setup, "dim", 0), len(setup.args) != 1 or len(call.args) != 2
    return along is not None and not others and source.code(along.value) in _FEATURES


def _pair(source: Source, call: cst.Call) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """The values that give the rows and the columns of the table; None for other calls."""
    given = [arg for arg in call.args[:2] if arg.keyword is None and not arg.star]
    if len(given) != 2:
        return None
    (first, at_first), (second, at_second) = (_widened(source, arg.value) for arg in given)
    if first is None or second is None or {at_first, at_second} != {0, 1}:
        return None
    return (first, second) if at_first == 1 else (second, first)


def _widened(source: Source, value: cst.BaseExpression) -> tuple[cst.BaseExpression | None, int]:
    """`a` and 1 for `a.unsqueeze(1)` and `a[:, None]`; None and 0 for everything else."""
    if isinstance(value, cst.Call) and called(value) == "unsqueeze" and isinstance(value.func, cst.Attribute):
        at = argument(value, "dim", 0)
        text = source.code(at.value) if at is not None else ""
        return (value.func.value, int(text)) if text in ("0", "1") else (None, 0)
    if isinstance(value, cst.Subscript):
        inside = [one.slice for one in value.slice]
        # `[None]`, `[None, :, :]` and `[:, None, :]`
        none = [at for at, one in enumerate(inside) if isinstance(one, cst.Index) and dotted(one.value) == "None"]
        whole = [one for one in inside if is_whole(one)]
        if len(none) == 1 and len(whole) == len(inside) - 1 <= 2 and none[0] < 2:
            return value.value, none[0]
    return None, 0


def _product(source: Source, call: cst.Call, rows: cst.BaseExpression, columns: cst.BaseExpression) -> Proposal:
    site = RewriteSite(ID, Claim.ROUNDING, source, call)
    torch = torch_name(source)
    functional = name_of_import(source, "torch.nn.functional") or (f"{torch}.nn.functional" if torch else "")
    if not functional:
        return site.refuse("the file does not import torch by a name that a new line could use")
    first, second = (f"{functional}.normalize({source.code(one)}, dim=1)" for one in (rows, columns))
    text = f"{first} @ {second}.t()"
    alone = isinstance(source.parent(call), cst.Assign | cst.Return | cst.Arg)
    return site.change([replace(source, call, text if alone else f"({text})")])


PAIRS_BY_PRODUCT = Rewrite(ID, 42, Claim.ROUNDING, find)
