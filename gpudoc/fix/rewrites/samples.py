"""5 and 6: files and objects that a data set reads or builds again for each sample although they stay the same."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.model import Claim, RunEvidence
from gpudoc.fix.rewrites.base import (
    Proposal,
    Rewrite,
    RewriteSite,
    import_edits,
    insert_line,
    measured_lines,
    replace,
    statements,
    step_of_indent,
)
from gpudoc.fix.rewrites.dependence import (
    NamedValue,
    changed_later,
    init_edit,
    is_set_once,
    measured_values,
    names_read,
)
from gpudoc.fix.rewrites.sample_aliases import SharedParts, goes_to_default_collate
from gpudoc.fix.rewrites.vocabulary import BUILDERS, PARSING, PRETRAINED, READERS, READING, TRANSFORM
from gpudoc.fix.rewrites.written import reads_only, written_later
from gpudoc.fix.source import Edit, Node, Source
from gpudoc.fix.tree import (
    Function,
    argument,
    below,
    bindings,
    binds,
    called,
    calls,
    class_of,
    dotted,
    function_of,
    is_literal,
    methods,
    qualified,
    scope_of,
    uses,
    words,
)

FILE, OBJECT = "file-per-sample", "object-per-sample"
# functions that read a file of several samples, and calls that may build its name
_SEVERAL = frozenset({"numpy.load", "torch.load"})
_NAMES_A_FILE = frozenset({"join", "str", "Path", "format"})
_MOST_FILES = 64
_NOT_PER_SAMPLE = ("__init__", "__len__", "forward", "main")


def find_files(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for a file that is read again for each sample and holds all samples or several."""
    found = [one for made in measured_values(source, evidence) for one in _per_sample(source, made, FILE)]
    return found + _of_some(source, evidence)


def _of_some(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for `shard = np.load(path)` with `shard["x"][i]` later: a file of several samples."""
    found: list[Proposal] = []
    asked: list[Node] = []
    for statement in statements(source, measured_lines(source, evidence)):
        function = function_of(source, statement)
        if function is None or function in asked or function.name.value != "__getitem__":
            continue
        asked.append(function)
        owner = class_of(source, function)
        for row in function.body.body if owner is not None else ():
            part = row.body[0] if isinstance(row, cst.SimpleStatementLine) and len(row.body) == 1 else None
            if isinstance(part, cst.Assign) and isinstance(part.targets[0].target, cst.Name):
                assert isinstance(row, cst.SimpleStatementLine)
                made = NamedValue(row, part.targets[0].target.value, part.value)
                found += _kept_files(source, made, function, owner)
    return found


def _kept_files(source: Source, made: NamedValue, function: Function, owner: cst.ClassDef | None) -> list[Proposal]:
    call = made.value
    if owner is None or not isinstance(call, cst.Call) or qualified(source, call.func) not in _SEVERAL or not call.args:
        return []
    chains = [_chain(source, use) for use in uses(source, function, made.name) if not binds(source, use)]
    if not any(not is_literal(index) for chain in chains for index in chain) or not _depends_on_sample(
        source, made, None
    ):
        return []
    site = RewriteSite(FILE, Claim.EXACT, source, made.statement)
    given, name = call.args[0].value, f"_load_{made.name}"
    if call.args[0].keyword is not None or not all(is_literal(arg.value) for arg in call.args[1:]):
        return [site.refuse("how it is read depends on more than the file's name")]
    if any(called(one) not in _NAMES_A_FILE for one in calls(given)):
        return [site.refuse(f"`{source.code(given)}` may be more than the name of a file")]
    if argument(call, "mmap_mode") is not None:
        return [site.refuse("the file is mapped into memory, and processes would share the mapping")]
    by_torch = qualified(source, call.func) == "torch.load"
    reason = _changed_when_shared(source, made, function) or written_later(source, owner.name.value, by_torch=by_torch)
    if reason or "chdir" in words(source):
        return [site.refuse(reason or "the script changes its folder, so that the same path may be another file")]
    imported = import_edits(source, "functools")
    if name in words(source) or source.parent(owner) is not source.module or imported is None:
        return [site.refuse(f"this file has no place for a function `{name}`")]
    archive = qualified(source, call.func) == "numpy.load" and any(
        isinstance(c[0], cst.SimpleString) for c in chains if c
    )
    if archive and not all(c and isinstance(c[0], cst.SimpleString) for c in chains):
        return [site.refuse(f"`{made.name}` is used as more than a table of arrays")]
    read = "path".join(source.code(call).split(source.code(given), 1))
    first = source.line(owner.decorators[0]) if owner.decorators else source.line(owner)
    end, step = source.newline(first), step_of_indent(source)
    lines = [f"@functools.lru_cache(maxsize={_MOST_FILES})", f"def {name}(path):"]
    # a NumPy archive unpacks an array on each access
    lines += [f"{step}return {f'dict({read})' if archive else read}", "", ""]
    edits = [insert_line(source, first, end.join(lines)), replace(source, call, f"{name}({source.code(given)})")]
    besides = f"The content of the last {_MOST_FILES} files stays in memory, in each worker process."
    return [site.change([*edits, *imported], besides)]


def _chain(source: Source, use: Node) -> list[Node]:
    """The indices at one use of a value: `"x"` and `i` in `shard["x"][i]`."""
    found: list[Node] = []
    node, above = use, source.parent(use)
    while isinstance(above, cst.Subscript) and above.value is node:
        index = above.slice[0].slice
        found.append(index.value if isinstance(index, cst.Index) else index)
        node, above = above, source.parent(above)
    return found


def find_objects(source: Source, evidence: RunEvidence) -> list[Proposal]:
    """Changes or refusals for a tokenizer, a pattern or a transform that is built again for each sample."""
    return [one for made in measured_values(source, evidence) for one in _per_sample(source, made, OBJECT)]


def _table(source: Source, made: NamedValue) -> tuple[NamedValue, str]:
    """The part of `json.load(file)["rows"][index]` that is the same for all samples, and the text after it."""
    value, behind = made.value, made.value
    while isinstance(value, cst.Subscript):
        if not all(isinstance(one.slice, cst.Index) and is_literal(one.slice.value) for one in value.slice):
            behind = value.value
        value = value.value
    if not isinstance(behind, cst.BaseExpression) or not isinstance(value, cst.Call):
        return made, ""
    end = source.outer_span(behind)[1]
    return NamedValue(made.statement, made.name, behind), source.text[end : source.outer_span(made.value)[1]]


def _per_sample(source: Source, made: NamedValue, rewrite: str) -> list[Proposal]:
    function = function_of(source, made.statement)
    if function is None or function.name.value in _NOT_PER_SAMPLE:
        return []
    part = ""
    if rewrite == FILE:
        made, part = _table(source, made)
    opened = _opened_by_with(source, made) if rewrite == FILE else None
    fits = _is_builder(source, made.value)
    if rewrite == FILE:
        fits = opened is not None or _is_reader(source, made.value)
    if not fits:
        return []
    site = RewriteSite(rewrite, Claim.EXACT, source, made.statement)
    if reason := _why_not(source, made, opened, function, rewrite):
        return [site.refuse(reason)]
    besides = ["The content stays in memory, once in each worker process."] if rewrite == FILE else []
    owner = class_of(source, function)
    if owner is not None:
        initial = methods(owner).get("__init__")
        edits = _held_by_self(source, made, initial, opened, part) if initial is not None else None
        if edits is None:
            reason = f"`{owner.name.value}` has no `__init__` here that could hold it and surely runs to its end"
            return [site.refuse(reason)]
        return [site.change(edits, *besides)]
    if opened is not None or source.parent(function) is not source.module:
        return [site.refuse("it is not one line in a function at the top of the file, above which it could stand")]
    first = source.line(function.decorators[0]) if function.decorators else source.line(function)
    top = insert_line(source, first, f"_{made.name} = {source.code(made.value)}" + 2 * source.newline(first))
    return [site.change([top, replace(source, made.value, f"_{made.name}")], *besides)]


def _why_not(source: Source, made: NamedValue, opened: cst.With | None, function: Function, rewrite: str) -> str:
    if reason := _depends_on_sample(source, made, opened):
        return reason
    reason = _changed_when_shared(source, made, function) if rewrite == FILE else changed_later(source, function, made)
    if reason:
        return reason
    found = list(calls(made.value))
    if any(qualified(source, call.func) in READERS or called(call) in READING for call in found) or opened:
        owner = class_of(source, function)
        by_torch = any(qualified(source, call.func) == "torch.load" for call in found)
        if reason := written_later(source, "" if owner is None else owner.name.value, by_torch=by_torch):
            return reason
        if "chdir" in words(source):
            return "the script changes its folder, so that the same path may be another file"
    if f"_{made.name}" in words(source):
        return f"the name `_{made.name}` is taken"
    if source.parent(opened or made.statement) is not function.body:
        return "only some of the samples need it"
    return ""


def _changed_when_shared(source: Source, made: NamedValue, function: Function) -> str:
    parts = SharedParts(source, function, made.statement, made.name).follow()
    if parts.reason or not parts.returned:
        return parts.reason
    owner, line = class_of(source, function), source.line(parts.returned[0])
    if function.name.value != "__getitem__" or owner is None or not goes_to_default_collate(source, owner):
        return f"line {line} hands `{made.name}` on, and it may be changed there"
    return ""


def _held_by_self(
    source: Source, made: NamedValue, initial: Function, opened: cst.With | None, part: str
) -> list[Edit] | None:
    """The edits that move the reading to the end of `__init__`; `part` follows the attribute at its use."""
    attribute = f"self._{made.name}"
    if opened is None:
        edit = init_edit(source, initial, [f"{attribute} = {source.code(made.value)}"])
        return None if edit is None else [edit, replace(source, made.value, attribute)]
    line = source.line(opened)
    if line + 1 != source.line(made.statement):
        return None
    step = source.indent(made.statement)[len(source.indent(opened)) :]
    head = source.line_text(line).strip()
    edit = init_edit(source, initial, [head, f"{step}{attribute} = {source.code(made.value)}"])
    start, end = source.span(opened)[0], source.span(made.statement)[1]
    return None if edit is None else [edit, Edit(start, end, f"{made.name} = {attribute}{part}")]


def _opened_by_with(source: Source, made: NamedValue) -> cst.With | None:
    """The `with open(...)` whose whole body is this statement."""
    block = source.parent(made.statement)
    above = source.parent(block) if isinstance(block, cst.IndentedBlock) else None
    if not isinstance(above, cst.With) or len(above.items) != 1 or not isinstance(block, cst.IndentedBlock):
        return None
    item = above.items[0]
    opens = isinstance(item.item, cst.Call) and dotted(item.item.func) == "open" and item.asname is not None
    if not opens or len(block.body) != 1 or above.asynchronous is not None:
        return None
    parsing = [called(call) in PARSING for call in calls(made.value)]
    return above if parsing and all(parsing) else None


def _is_reader(source: Source, value: Node) -> bool:
    found = list(calls(value))
    reads = any(qualified(source, call.func) in READERS or called(call) in READING for call in found)
    return reads and all(called(call) in PARSING for call in found)


def _is_builder(source: Source, value: Node) -> bool:
    if not isinstance(value, cst.Call):
        return False
    name = qualified(source, value.func)
    if name in BUILDERS or PRETRAINED.match(name):
        return all(one is value for one in calls(value))
    return bool(TRANSFORM.match(name)) and all(TRANSFORM.match(qualified(source, one.func)) for one in calls(value))


def _depends_on_sample(source: Source, made: NamedValue, opened: cst.With | None) -> str:
    item = opened.items[0] if opened is not None else None
    handle = dotted(item.asname.name) if item is not None and item.asname is not None else ""
    for part in (made.value, item.item) if item is not None else (made.value,):
        if any(isinstance(one, cst.Lambda | cst.NamedExpr | cst.Await) for one in below(part)):
            return "it is more than a plain value"
        for call in calls(part):
            if argument(call, "mmap_mode") is not None:
                return "the file is mapped into memory, and processes would share the mapping"
            mode = argument(call, "mode", 1) if called(call) == "open" else None
            if mode is not None and not reads_only(source, mode):
                return "the file is not opened for reading alone"
        for name in names_read(source, part):
            if name == handle:
                continue
            if name.startswith("self."):
                if not is_set_once(source, made.statement, name):
                    return f"`{name}` is not set in `__init__` alone, so the samples may differ in it"
            elif not _is_module_constant(source, name):
                return f"it depends on `{name}`, so each sample may have another one"
    return ""


def _is_module_constant(source: Source, name: str) -> bool:
    if name == "__file__":
        return True
    made = bindings(source.module, name)
    if len(made) != 1 or scope_of(source, made[0]) is not source.module or not isinstance(made[0], cst.Assign):
        return False
    value = made[0].value
    path = isinstance(value, cst.Call) and called(value) == "Path" and all(is_literal(arg.value) for arg in value.args)
    return is_literal(value) or path


FILE_PER_SAMPLE = Rewrite(FILE, 5, Claim.EXACT, find_files)
OBJECT_PER_SAMPLE = Rewrite(OBJECT, 6, Claim.EXACT, find_objects)
