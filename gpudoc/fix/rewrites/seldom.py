"""8 and 20: a log or a wait for the GPU in each step, more often than necessary; and how a loop counts its rounds."""

from __future__ import annotations

import math

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import (
    Proposal,
    Rewrite,
    RewriteSite,
    indented,
    insert_line,
    measured_lines,
    replace,
    statements,
    step_of_indent,
)
from gpudoc.fix.source import Node, Source
from gpudoc.fix.tree import (
    below,
    binding,
    bindings,
    called,
    calls,
    dotted,
    enclosing,
    local_functions,
    loops_around,
    scope_of,
    uses,
)
from gpudoc.patterns import Pattern

LOGGING, ITEM = "logging-each-step", "item-each-step"
MOVES = frozenset({"rename", "replace", "unlink", "symlink_to", "exists", "stat", "system", "copy2", "copyfile"})
_LOG_EVERY = 50
_LOGS = frozenset(
    {"add_histogram", "add_scalar", "add_scalars", "add_image", "add_figure", "add_text", "log", "log_metrics"}
    | {"print", "info", "debug"}
)
_LOGGERS = Pattern(
    r"(?i)^(?:self\.)?(?:\w*writer|tb|tensorboard|summary|wandb|mlflow|neptune|\w*logger|logging|log|run)$"
)
DRAWS = frozenset({"rand", "randn", "randint", "sample", "choice", "multinomial", "randperm"})
DOES_MORE = frozenset({"step", "next", "pop", "update", "append", "backward", "zero_grad"})


def only_call(statement: Node) -> cst.Call | None:
    """The call if a statement consists of one call whose result is not used."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    part = statement.body[0]
    return part.value if isinstance(part, cst.Expr) and isinstance(part.value, cst.Call) else None


def round_up(number: float) -> int:
    """The number rounded up to 10, 20, 50, 100, and so on."""
    for power in range(1, 7):
        for first in (1, 2, 5):
            if first * 10**power >= number:
                return int(first * 10**power)
    return math.ceil(number)


def step_name(loop: cst.For | cst.While) -> str:
    """The name that counts the rounds of a loop from 0."""
    if not isinstance(loop, cst.For):
        return ""
    if not isinstance(loop.iter, cst.Call) or len(loop.iter.args) != 1:
        return ""
    kind, name = dotted(loop.iter.func), ""
    if kind == "range":
        name = dotted(loop.target)
    elif kind == "enumerate" and isinstance(loop.target, cst.Tuple) and loop.target.elements:
        name = dotted(loop.target.elements[0].value)
    return name if name and name != "_" and not bindings(loop.body, name) else ""


def last_step(source: Source, loop: cst.For | cst.While, step: str) -> str:
    """The number of rounds of a loop, as an expression of the file; '' if there is none."""
    if not step or not isinstance(loop, cst.For) or not isinstance(loop.iter, cst.Call):
        return ""
    given = loop.iter.args[0].value
    if dotted(loop.iter.func) == "range":
        simple = isinstance(given, cst.Integer) or (dotted(given) and not bindings(loop.body, dotted(given)))
        return source.code(given) if simple else ""
    name = dotted(given)
    return f"len({name})" if name and not bindings(loop.body, name) and _has_length(source, loop, name) else ""


def _has_length(source: Source, loop: cst.For, name: str) -> bool:
    made = [one for one in bindings(scope_of(source, loop), name) if isinstance(one, cst.Assign)]
    return (
        len(made) == 1
        and isinstance(made[0].value, cst.Call)
        and called(made[0].value) == "DataLoader"
        and not any("Iterable" in word for word in (source.code(made[0].value), *_base_names(source)))
    )


def _base_names(source: Source) -> list[str]:
    return [source.code(base.value) for one in source.nodes if isinstance(one, cst.ClassDef) for base in one.bases]


def may_end_early(source: Source, loop: cst.For | cst.While, *, after: Node | None = None) -> str:
    """Why a loop may not reach the end of its last round; `after`: breaks after this statement do not count."""
    for one in below(loop.body):
        if after is not None and isinstance(one, cst.Break) and source.span(one)[0] > source.span(after)[1]:
            continue
        if isinstance(one, cst.Break | cst.Return | cst.Raise) or _ends_script(one):
            return f"line {source.line(one)} may leave the loop, and its last state would not be saved"
        if isinstance(one, cst.Continue):
            return f"line {source.line(one)} may skip the last step's save"
    if enclosing(source, loop, cst.Try) is not None:
        return "a try around the loop may end it, and its last state would not be saved"
    for word in ("signal", "SIGTERM", "SIGUSR1", "preempt", "requeue"):
        if any(isinstance(one, cst.Name) and one.value == word for one in source.nodes):
            return f"`{word}` in this file says that the job may end at any time: each checkpoint may be needed"
    return ""


def _ends_script(node: Node) -> bool:
    """Whether a node ends the script."""
    return isinstance(node, cst.Call) and called(node) in ("exit", "quit", "_exit", "abort")


def wrapped(site: RewriteSite, condition: str, besides: str) -> Proposal:
    """The change that puts a statement under a condition."""
    source, statement = site.source, site.node
    moved = indented(source, statement, step_of_indent(source))
    if moved is None:
        return site.refuse("it contains a string of several lines, which a new indentation would change")
    head = insert_line(source, source.line(statement), f"{source.indent(statement)}if {condition}:")
    return site.change([head, *moved], besides)


def find_logs(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for lines that log or print in each step."""
    found: list[Proposal] = []
    for statement in statements(source, measured_lines(source, evidence)):
        call = only_call(statement)
        if call is None or not loops_around(source, statement) or not _logs(source, call):
            continue
        found.append(_log_seldom(RewriteSite(LOGGING, Claim.BEHAVIOUR, source, statement), call))
    return found


def _logs(source: Source, call: cst.Call) -> bool:
    if called(call) not in _LOGS or local_functions(source, called(call)):
        return False
    if isinstance(call.func, cst.Name):
        return call.func.value == "print"
    return isinstance(call.func, cst.Attribute) and bool(_LOGGERS.match(dotted(call.func.value)))


def _log_seldom(site: RewriteSite, call: cst.Call) -> Proposal:
    source, statement = site.source, site.node
    step, inner = "", True
    for loop in loops_around(source, statement):
        step = step or step_name(loop)
        if step:
            break
        inner = False
    if not step or not inner:
        return site.refuse("the loop does not count its steps, so no condition can choose which of them to log")
    if source.parent(statement) is not loops_around(source, statement)[0].body:
        return site.refuse("it is logged under a condition already")
    for one in calls(call):
        if one is not call and called(one) in (
            "rand",
            "randn",
            "randint",
            "sample",
            "choice",
            "multinomial",
            "randperm",
        ):
            return site.refuse(f"`{called(one)}` draws random numbers for what is logged, and later draws would differ")
        if one is not call and local_functions(source, called(one)):
            return site.refuse(f"`{called(one)}` of this file runs for what is logged, and may do more than that")
        if called(one) in DOES_MORE:
            return site.refuse(f"`{called(one)}` in it does more than logging")
    if any(isinstance(one, cst.NamedExpr | cst.Await | cst.Yield) for one in below(call)):
        return site.refuse("it does more than logging")
    besides = f"It is logged every {_LOG_EVERY} steps, not in each step."
    return wrapped(site, f"{step} % {_LOG_EVERY} == 0", besides)


def find_items(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `running += loss.item()` on a GPU: the sum may only be printed."""
    if not evidence.cuda:
        return []
    found: list[Proposal] = []
    for statement in statements(source, measured_lines(source, evidence)):
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            continue
        part = statement.body[0]
        if not loops_around(source, statement) or not isinstance(part, cst.AugAssign):
            continue
        value = part.value
        if isinstance(value, cst.Call) and called(value) == "item" and isinstance(value.func, cst.Attribute):
            found.append(_summed_on_device(source, part, value, value.func.value))
    return found


def _summed_on_device(source: Source, part: cst.AugAssign, value: cst.Call, tensor: Node) -> Proposal:
    site = RewriteSite(ITEM, Claim.EXACT, source, part)
    name = dotted(part.target)
    if not isinstance(part.operator, cst.AddAssign) or not isinstance(part.target, cst.Name):
        return site.refuse("it is not the sum of a plain variable")
    scope = scope_of(source, part)
    for one in bindings(scope, name):
        if one is part or (isinstance(one, cst.Assign) and isinstance(one.value, cst.Integer | cst.Float)):
            continue
        return site.refuse(f"line {source.line(one)} sets `{name}` to something else than a number")
    for use in uses(source, scope, name):
        if any(bound is use for above in source.ancestors(use) for _, bound in binding(above)):
            continue
        if not _only_formatted(source, use):
            return site.refuse(f"line {source.line(use)} uses `{name}` as a plain number, not in a text with a format")
    if any(isinstance(one, cst.Global | cst.Nonlocal) for one in source.nodes):
        return site.refuse(f"`{name}` may be used outside of the function")
    # Python sums in double precision, so the device must do so too
    return site.change([replace(source, value, f"{source.code(tensor)}.detach().double()")])


def _only_formatted(source: Source, use: Node) -> bool:
    """Whether a use ends in a formatted text such as `{running / n:.3f}`, or in float()."""
    for above in source.ancestors(use):
        if isinstance(above, cst.FormattedStringExpression):
            spec = "".join(one.value for one in above.format_spec or () if isinstance(one, cst.FormattedStringText))
            return above.conversion is None and spec.endswith(("f", "e", "g", "%"))
        if isinstance(above, cst.Call):
            return dotted(above.func) == "float"
        if not isinstance(above, cst.BinaryOperation | cst.Arg):
            return False
    return False


LOGGING_EACH_STEP = Rewrite(LOGGING, 20, Claim.BEHAVIOUR, find_logs)
ITEM_EACH_STEP = Rewrite(ITEM, 8, Claim.EXACT, find_items)
