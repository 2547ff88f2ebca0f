"""10, 27 and 28: what needs less memory at once: kept outputs, a batch in chunks, activation checkpointing."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.flow import is_plain
from gpudoc.fix.model import Claim, Evidence
from gpudoc.fix.rewrites.base import (
    Proposal,
    Rewrite,
    RewriteSite,
    insert_line,
    measured_lines,
    replace,
    statements,
    step_of_indent,
)
from gpudoc.fix.rewrites.held import root
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import (
    bases,
    below,
    binding,
    bindings,
    called,
    calls,
    class_of,
    class_of_call,
    dotted,
    enclosing,
    function_of,
    loops_around,
    methods,
    model_is_shown,
    qualified,
    scope_of,
    uses,
    words,
)
from gpudoc.patterns import Pattern

OUTPUTS, CHUNKS, ACTIVATIONS = "kept-outputs", "batch-in-chunks", "activation-checkpointing"
_NUM_CHUNKS = 4
# statistics of a batch, or numbers that are kept from forward to forward
_STATISTICS = Pattern(r"(?i)batch_?norm|instance_?norm|syncbatch|track_running_stats|\bghost_?norm|spectral_norm")
_CHANCE = Pattern(r"(?i)dropout|droppath|drop_path|stochastic_?depth|^rand|^rrelu|gumbel|bernoulli|multinomial|rsample")
_IN_BATCH = Pattern(
    r"(?i)contrastive|info_?nce|nt_?xent|triplet|clip_?loss|in_?batch|negatives|similarity|barlow|vicreg|ctc"
)
_REDUCES = frozenset({"mean", "std", "var", "sum", "max", "min", "amax", "amin", "norm", "softmax", "cumsum", "sort"})
_MEANS = frozenset(
    {"MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCEWithLogitsLoss", "BCELoss", "CrossEntropyLoss"}
    | {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "cross_entropy"}
)


def find_outputs(source: Source, evidence: Evidence) -> list[Proposal]:
    """`kept.append(logits)` where of all that is kept only the largest column is asked for."""
    lines = [line for file, line in evidence.keeps_at if file == source.path]
    found: list[Proposal] = []
    for statement in statements(source, [*lines, *measured_lines(source, evidence)]):
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            continue
        part = statement.body[0]
        call = part.value if isinstance(part, cst.Expr) else None
        if not isinstance(call, cst.Call) or called(call) != "append" or len(call.args) != 1:
            continue
        kept = call.func.value if isinstance(call.func, cst.Attribute) else None
        if isinstance(kept, cst.Name) and loops_around(source, statement):
            found += _reduced(source, kept, call)
    return found


def _reduced(source: Source, kept: cst.Name, append: cst.Call) -> list[Proposal]:
    name, scope = kept.value, scope_of(source, kept)
    site = RewriteSite(OUTPUTS, Claim.EXACT, source, append)
    reads = [use for use in uses(source, scope, name) if use is not kept and not _binds(source, use)]
    picked = [found for use in reads if (found := _argmax_of_cat(source, use)) is not None]
    if not picked:
        return []
    if len(picked) != 1 or len(reads) != 1:
        return [site.refuse(f"`{name}` is used for more than its largest column, and is needed whole")]
    if len([one for one in bindings(scope, name) if isinstance(one, cst.Assign)]) != 1:
        return [site.refuse(f"`{name}` is set in several places")]
    value, (pick, cat) = append.args[0].value, picked[0]
    if reason := _written_in_place(source, scope, root(value)):
        return [site.refuse(reason)]
    if isinstance(value, cst.Call) and called(value) in ("argmax", "tolist", "numpy", "item"):
        return []
    code = source.code(value)
    if not isinstance(value, cst.Name | cst.Attribute | cst.Call | cst.Subscript) and not value.lpar:
        code = f"({code})"
    tail = source.text[source.outer_span(cat)[1] : source.outer_span(pick)[1]]
    return [site.change([replace(source, value, code + tail), replace(source, pick, source.code(cat))])]


def _written_in_place(source: Source, scope: Node, name: str) -> str:
    """Where what is kept is changed, perhaps after it was kept."""
    for one in below(scope):
        target: Node | None = None
        if isinstance(one, cst.Call) and isinstance(one.func, cst.Attribute):
            target = one.func.value if called(one).endswith("_") else None
        elif isinstance(one, cst.AugAssign):
            target = one.target
        elif isinstance(one, cst.AssignTarget):
            target = one.target if isinstance(one.target, cst.Subscript) else None
        if name and target is not None and root(target) == name:
            return f"line {source.line(one)} changes `{name}` in place, perhaps after it was kept"
    return ""


def _binds(source: Source, use: Node) -> bool:
    return any(part is use for above in source.ancestors(use) for _, part in binding(above))


def _argmax_of_cat(source: Source, use: Node) -> tuple[cst.Call, cst.Call] | None:
    """`torch.cat(kept).argmax(1)` and its `torch.cat(kept)` around a use."""
    arg = source.parent(use)
    cat = source.parent(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(cat, cst.Call) or qualified(source, cat.func) not in ("torch.cat", "torch.concat"):
        return None
    if len(cat.args) > 1 and source.code(cat.args[1].value) != "0":
        return None
    attribute = source.parent(cat)
    pick = source.parent(attribute) if isinstance(attribute, cst.Attribute) else None
    if not isinstance(pick, cst.Call) or called(pick) != "argmax" or len(pick.args) != 1:
        return None
    given = pick.args[0]
    dim = source.code(given.value) if given.keyword is None or given.keyword.value == "dim" else ""
    return (pick, cat) if dim in ("1", "-1") else None


def find_activations(source: Source, evidence: Evidence) -> list[Proposal]:
    """`for block in self.blocks: x = block(x)` where memory ran out: blocks are computed again in the backward."""
    died = evidence.died_at
    if died is None or died.file != source.path:
        return []
    found: list[Proposal] = []
    # the line that died may be in the loss or the optimizer: each deep stack of this file could save memory
    for loop in source.nodes:
        if isinstance(loop, cst.For) and (statement := _block_call(source, loop)) is not None:
            found.append(_checkpointed(source, loop, statement))
    return found if len(found) == 1 else []


def _block_call(source: Source, loop: cst.For) -> cst.Assign | None:
    """The `x = block(x)` that is all that a loop over the model's blocks does."""
    function = function_of(source, loop)
    if function is None or function.name.value != "forward" or not dotted(loop.iter).startswith("self."):
        return None
    body = loop.body.body
    if len(body) != 1 or not isinstance(body[0], cst.SimpleStatementLine) or len(body[0].body) != 1:
        return None
    part = body[0].body[0]
    if not isinstance(part, cst.Assign) or len(part.targets) != 1 or not isinstance(part.value, cst.Call):
        return None
    call, target = part.value, part.targets[0].target
    same = call.args and dotted(call.args[0].value) == dotted(target) != ""
    return part if same and dotted(call.func) == dotted(loop.target) != "" else None


def _checkpointed(source: Source, loop: cst.For, part: cst.Assign) -> Proposal:
    site = RewriteSite(ACTIVATIONS, Claim.EXACT, source, part)
    call = part.value
    assert isinstance(call, cst.Call)
    if reason := _not_twice(source, loop):
        return site.refuse(reason)
    if any(arg.star for arg in call.args):
        return site.refuse("arguments are unpacked in the call of the block")
    first = next((one for one in source.module.body if _imports_torch(one)), None)
    if first is None:
        return site.refuse("the file does not import torch by its name")
    given = source.text[source.outer_span(call.args[0].value)[0] : source.outer_span(call.args[-1].value)[1]]
    block = source.code(call.func)
    text = f"torch.utils.checkpoint.checkpoint({block}, {given}, use_reentrant=False)"
    line = source.last_line(first) + 1
    return site.change(
        [insert_line(source, line, "import torch.utils.checkpoint"), replace(source, call, text)],
        "Each block is computed a second time in the backward, so steps take longer.",
    )


def _imports_torch(node: Node) -> bool:
    return isinstance(node, cst.SimpleStatementLine) and any(
        isinstance(part, cst.Import) and any(dotted(one.name) == "torch" and one.asname is None for one in part.names)
        for part in node.body
    )


def _not_twice(source: Source, loop: cst.For) -> str:
    """Why a block may do something else when it is computed a second time."""
    if reason := _model_words(source, _STATISTICS, "keeps statistics of batches, which would count each batch twice"):
        return reason
    for word in ("script", "compile", "make_graphed_callables", "checkpoint", "numpy"):
        if word in words(source):
            return f"`{word}` in this file may not go together with a block that is computed twice"
    imports_random = any(isinstance(one, cst.Import) and "random" in source.code(one) for one in source.nodes)
    if imports_random:
        return "Python's random numbers are not set back when a block is computed a second time"
    function = function_of(source, loop)
    owner = class_of(source, function) if function is not None else None
    name = dotted(loop.iter)
    made = bindings(owner, name) if owner is not None else []
    if len(made) != 1 or not isinstance(made[0], cst.Assign):
        return f"it cannot be seen here what `{name}` is made of"
    for one in calls(made[0].value):
        known = class_of_call(source, one) is not None or qualified(source, one.func).startswith("torch.nn.")
        if not known and called(one) != "range":
            return f"`{called(one) or name}` is not in this file, and may do something else the second time"
    return _side_effects(source)


def _side_effects(source: Source) -> str:
    for owner in source.nodes:
        if not isinstance(owner, cst.ClassDef) or not any(name.endswith("Module") for name in bases(source, owner)):
            continue
        for method, function in methods(owner).items():
            if method == "__init__":
                continue
            for one in below(function):
                if isinstance(one, cst.Assign | cst.AugAssign) and any(n.startswith("self.") for n, _ in binding(one)):
                    return f"line {source.line(one)} changes the model in a forward, which would happen twice"
                if isinstance(one, cst.Call) and called(one) in ("append", "print", "add_", "copy_", "register_buffer"):
                    return f"line {source.line(one)} does something in a forward that would happen twice"
    return ""


def _model_words(source: Source, pattern: Pattern, reason: str) -> str:
    found = sorted(word for word in words(source) if pattern.search(word))
    return f"`{found[0]}` {reason}" if found else ""


def find_chunks(source: Source, evidence: Evidence) -> list[Proposal]:
    """Forward, loss and backward of a batch at whose lines memory ran out: four chunks, weighted by their length."""
    died = evidence.died_at
    if died is None or died.file != source.path:
        return []
    found: list[Proposal] = []
    for call in calls(source.module):
        if called(call) == "backward" and not call.args and isinstance(call.func, cst.Attribute):
            triple = _forward_loss_backward(source, call)
            if triple is not None:
                found.append(_chunked(source, *triple))
    return found if len(found) == 1 else []


def _forward_loss_backward(source: Source, backward: cst.Call) -> tuple[cst.Assign, cst.Assign, Node] | None:
    """`out = model(x)`, `loss = criterion(out, y)` and `loss.backward()` as three lines in a row."""
    third = source.parent(source.parent(backward) or backward)
    block = source.parent(third) if third is not None else None
    if not isinstance(third, cst.SimpleStatementLine) or not isinstance(block, cst.IndentedBlock):
        return None
    index = list(block.body).index(third)
    if index < 2 or not loops_around(source, third):
        return None
    parts = [
        one.body[0] if isinstance(one, cst.SimpleStatementLine) and len(one.body) == 1 else None
        for one in block.body[index - 2 : index]
    ]
    first, second = parts
    if not isinstance(first, cst.Assign) or not isinstance(second, cst.Assign):
        return None
    if not isinstance(first.value, cst.Call) or not isinstance(second.value, cst.Call):
        return None
    if len(first.value.args) != 1 or len(second.value.args) != 2 or len(first.targets) + len(second.targets) != 2:
        return None
    out, loss = dotted(first.targets[0].target), dotted(second.targets[0].target)
    root = backward.func.value if isinstance(backward.func, cst.Attribute) else None
    given = [dotted(arg.value) for arg in second.value.args if arg.keyword is None]
    fits = out and loss and dotted(root) == loss and len(given) == 2 and given[0] == out and given[1]
    return (first, second, third) if fits and dotted(first.value.args[0].value) else None


def _chunked(source: Source, first: cst.Assign, second: cst.Assign, third: Node) -> Proposal:
    site = RewriteSite(CHUNKS, Claim.ROUNDING, source, first)
    forward, criterion = first.value, second.value
    assert isinstance(forward, cst.Call)
    assert isinstance(criterion, cst.Call)
    x, out = dotted(forward.args[0].value), dotted(first.targets[0].target)
    y, loss = dotted(criterion.args[1].value), dotted(second.targets[0].target)
    if reason := _whole_batch(source, forward, criterion) or _used_after(source, third, out, loss):
        return site.refuse(reason)
    if "." in x or "." in y or {f"{x}_part", f"{y}_part", f"{loss}_part"} & words(source):
        return site.refuse("the batch is not in plain variables, or the names for its parts are taken")
    indent, step, ending = source.indent(first), step_of_indent(source), source.newline(source.line(first))
    model, measure = source.code(forward.func), source.code(criterion.func)
    lines = [
        f"{loss} = 0.0",
        f"for {x}_part, {y}_part in zip({x}.chunk({_NUM_CHUNKS}), {y}.chunk({_NUM_CHUNKS})):",
        f"{step}{loss}_part = {measure}({model}({x}_part), {y}_part) * (len({x}_part) / len({x}))",
        f"{step}{loss}_part.backward()",
        f"{step}{loss} = {loss} + {loss}_part.detach()",
    ]
    edit = Edit(source.span(first)[0], source.span(third)[1], (ending + indent).join(lines))
    return site.change([edit], f"The batch goes through the model in {_NUM_CHUNKS} chunks, one after the other.")


def _whole_batch(source: Source, forward: cst.Call, criterion: cst.Call) -> str:
    """Why the parts of a batch may give other gradients than the whole."""
    for pattern, reason in (
        (_STATISTICS, "takes statistics of the whole batch"),
        (_CHANCE, "draws other random numbers for a chunk than for a whole batch"),
        (_IN_BATCH, "sounds as if samples of a batch are compared with each other"),
    ):
        if found := _model_words(source, pattern, reason):
            return found
    if found := _over_batch(source):
        return found
    name = dotted(forward.func)
    if not model_is_shown(source, name):
        return f"`{name}` is not in this file, and may take statistics of the whole batch"
    loss = criterion
    if called(criterion) not in _MEANS:
        chosen = [one for one in bindings(source.module, dotted(criterion.func)) if isinstance(one, cst.Assign)]
        if len(chosen) != 1 or not isinstance(chosen[0].value, cst.Call) or called(chosen[0].value) not in _MEANS:
            return "it cannot be seen here that the loss is a mean over samples"
        loss = chosen[0].value
        if loss.args:
            return "the loss has settings, and may not be a plain mean over samples"
    if not qualified(source, loss.func).startswith("torch.nn."):
        return "it cannot be seen here that the loss is a mean over samples"
    if "ignore_index" in words(source) or "mask" in words(source):
        return "samples that are masked would need another weight"
    return ""


def _over_batch(source: Source) -> str:
    """Where a forward of this file may compute over the samples of a batch."""
    for function in source.nodes:
        if not isinstance(function, cst.FunctionDef) or function.name.value != "forward":
            continue
        for call in calls(function):
            dims = [source.code(arg.value) for arg in call.args if arg.keyword is None or arg.keyword.value == "dim"]
            if called(call) in _REDUCES and (not dims or "0" in dims):
                return f"line {source.line(call)} computes over all samples of a batch"
    return ""


def _used_after(source: Source, third: Node, out: str, loss: str) -> str:
    scope, end = scope_of(source, third), source.span(third)[1]
    for use in uses(source, scope, out):
        if source.span(use)[0] >= end and not _binds(source, use):
            return f"line {source.line(use)} uses `{out}` of the whole batch"
    for use in uses(source, scope, loss):
        if source.span(use)[0] < end or _binds(source, use):
            continue
        above = source.parent(source.parent(use) or use)
        kept = enclosing(source, use, cst.Call)
        plain = isinstance(above, cst.Call) and is_plain(above)
        if not plain and not (isinstance(kept, cst.Call) and is_plain(kept)):
            return f"line {source.line(use)} uses `{loss}` with its graph, perhaps"
    return ""


KEPT_OUTPUTS = Rewrite(OUTPUTS, 10, Claim.EXACT, find_outputs)
BATCH_IN_CHUNKS = Rewrite(CHUNKS, 27, Claim.ROUNDING, find_chunks)
ACTIVATION_CHECKPOINTING = Rewrite(ACTIVATIONS, 28, Claim.EXACT, find_activations)
