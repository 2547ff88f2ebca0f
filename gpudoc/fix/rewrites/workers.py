"""What a data set or a collate function would do differently in a worker process than in the main one."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.flow import FILLING
from gpudoc.fix.rewrites.dependence import root
from gpudoc.fix.rewrites.vocabulary import FRESH
from gpudoc.fix.source import Source
from gpudoc.fix.tree import (
    argument,
    bases,
    below,
    binding,
    bindings,
    called,
    calls,
    dotted,
    function_of,
    local_class,
    local_functions,
    methods,
    parameters,
    qualified,
    scope_of,
    words,
)
from gpudoc.patterns import Pattern

ITERABLES = frozenset({"IterableDataset", "IterDataPipe"})
RANDOM = Pattern(
    r"(?:random|rand\w*|uniform|normal|shuffle|choices?|sample|multinomial|bernoulli|exponential|poisson|gauss|gamma|beta|"
    r"dropout|permutation|integers|standard_normal|betavariate|getrandbits|urandom)_?"
)
# transforms and collators of libraries that draw from the generator of the process that calls them
_DRAWS = Pattern(
    r"^(?:Random\w*|ColorJitter|AutoAugment|TrivialAugment\w*|RandAugment|AugMix|ElasticTransform|GaussianBlur|GaussianNoise|MixUp|CutMix|DataCollatorForLanguageModeling|DataCollatorForWholeWordMask|DataCollatorForPermutationLanguageModeling|albumentations|SpecAugment|TimeMasking|FrequencyMasking)$"
)
_NOT_DRAWS = frozenset({"RandomSampler"})
_HANDLES = frozenset(
    {"open", "File", "connect", "ZipFile", "TarFile", "LMDB", "Environment", "VideoCapture", "socket", "Popen"}
)
_ON_GPU = frozenset({"cuda"})
_CHANGING = FILLING | {"pop", "popleft", "popitem", "clear", "remove", "sort", "reverse"}
# functions that return a new array
_NEW = FRESH | {"empty", "empty_like"}
_KEEPS = Pattern(r"(?m)rand|shuffle|manual_seed|^[ \t]+global\s|lru_cache|\.sample\(|\.choice")
_SEEDED = frozenset({"default_rng", "RandomState", "Random"})


def is_unsharded(source: Source, owner: cst.ClassDef) -> bool:
    """Whether a data set that can only be iterated gives each worker all of its samples."""
    return bool(ITERABLES & set(bases(source, owner))) and "get_worker_info" not in {
        one.value for one in below(owner) if isinstance(one, cst.Name)
    }


def why_not_in_workers(source: Source, call: cst.Call, owner: cst.ClassDef | None) -> str:
    """What a worker would do differently from the main process; '' if nothing was found."""
    context = argument(call, "multiprocessing_context")
    if context is not None:
        return "the loader says how its processes start, which may need more than a number"
    drawing = sorted(word for word in words(source) if _DRAWS.match(word) and not _is_known(source, word))
    if drawing:
        return f"`{drawing[0]}` draws random numbers, and a worker draws others than the main process"
    collate = argument(call, "collate_fn", 6)
    bodies: list[cst.CSTNode] = [owner] if owner is not None else []
    bodies += [
        one for name in (bases(source, owner) if owner else ()) if (one := local_class(source, name)) is not None
    ]
    if collate is not None:
        bodies += [collate.value, *local_functions(source, dotted(collate.value).rsplit(".", 1)[-1])]
    if owner is not None and (reason := _calls_unknown(source, owner) or _set_from_outside(source, owner)):
        return reason
    if "setattr" in words(source):
        return "the script sets attributes by their names, perhaps of the data set, and workers have copies of it"
    if reason := changed_meanwhile(source, call, owner):
        return reason
    for body in bodies:
        if (reason := _shares_handle(source, body)) or (reason := draws_next_to(source, body)):
            return reason
        if reason := differs_in_worker(source, body, depth=0):
            return reason
    return ""


def _is_known(source: Source, word: str) -> bool:
    """Whether a word that looks like a transform is a sampler, or Python's generator."""
    if word in _NOT_DRAWS:
        return True
    if word != "Random":
        return False
    named = [one for one in source.nodes if isinstance(one, cst.Name | cst.Attribute) and _last_of(one) == word]
    inner = {one.attr for one in named if isinstance(one, cst.Attribute)}
    imports = (cst.ImportAlias, cst.AsName)
    return all(
        one in inner or isinstance(source.parent(one), imports) or qualified(source, one) == "random.Random"
        for one in named
    )


def _last_of(node: cst.Name | cst.Attribute) -> str:
    return node.value if isinstance(node, cst.Name) else node.attr.value


def differs_in_worker(source: Source, body: cst.CSTNode, *, depth: int) -> str:
    """Why the code of a class or a function would give something else in a worker; '' if nothing indicates it."""
    initial = methods(body).get("__init__") if isinstance(body, cst.ClassDef) else None
    name = body.name.value if isinstance(body, cst.ClassDef | cst.FunctionDef) else "the collate function"
    inside = set(below(initial)) if initial is not None else set()
    for one in below(body):
        if isinstance(one, cst.Call):
            called_name = called(one)
            full = source.code(one.func)
            if one in inside:
                if called_name in _HANDLES and not _closed_by_with(source, one):
                    return f"`{name}` opens `{full}` when it is made, and processes would share one place in the file"
            elif _draws(source, one):
                return f"`{full}` draws random numbers for a sample, and a worker draws others than the main process"
            if called_name in _ON_GPU or (called_name == "to" and "cuda" in source.code(one)):
                return f"`{name}` holds or makes tensors on the GPU, which worker processes cannot share safely"
            if (
                one not in inside
                and called_name == "next"
                and one.args
                and dotted(one.args[0].value).startswith("self.")
            ):
                return f"`{name}` goes on with an iterator from sample to sample, and each worker has a copy of it"
            if one not in inside and (outer := _changes_outside(source, one)):
                return f"`{name}` changes `{outer}`, which stands outside of it, and each worker would change its copy"
            if one not in inside and _changes_own(one):
                return f"`{name}` calls `{full}` while it reads samples, and each worker would change its copy"
            if one not in inside and depth < 3:
                for function in local_functions(source, called_name):
                    inner = function is body or function in set(below(body))
                    if not inner and (reason := differs_in_worker(source, function, depth=depth + 1)):
                        return reason
        if one not in inside and isinstance(one, cst.Assign | cst.AugAssign | cst.AnnAssign):
            for bound, _ in binding(one):
                if bound.startswith("self.") and isinstance(body, cst.ClassDef) and _reads(body, one):
                    return f"`{name}` changes `{bound}` while it reads samples, and each worker would change its copy"
        if (
            one not in inside
            and isinstance(one, cst.Assign | cst.AugAssign)
            and (outer := _writes_outside(source, one))
        ):
            return f"`{name}` changes `{outer}`, which stands outside of it, and each worker would change its copy"
        if one not in inside and isinstance(one, cst.Global | cst.Nonlocal):
            return f"`{name}` changes a variable outside of it, and each worker would change its copy"
    return ""


def _draws(source: Source, call: cst.Call) -> bool:
    """Whether a call draws random numbers that would differ in another process."""
    if local_functions(source, called(call)) and not qualified(source, call.func):
        return False
    parts = f"{qualified(source, call.func)}.{dotted(call.func)}.{called(call)}".split(".")
    return any(RANDOM.fullmatch(part) for part in parts) and not _is_seeded(source, call)


def _calls_unknown(source: Source, owner: cst.ClassDef) -> str:
    """The reason if a data set calls a function that it was given (`self.transform(x)`) and one in this file draws."""
    own = methods(owner)
    given = [
        call
        for call in calls(owner)
        if dotted(call.func).count(".") == 1 and dotted(call.func).startswith("self.") and called(call) not in own
    ]
    if not given:
        return ""
    for function in source.nodes:
        if not isinstance(function, cst.FunctionDef | cst.Lambda):
            continue
        name = function.name.value if isinstance(function, cst.FunctionDef) else "lambda"
        if name == "forward":
            continue
        for call in calls(function):
            if _draws(source, call) and (name == "lambda" or call not in set(calls(owner))):
                return f"`{source.code(given[0].func)}` may be `{name}`, which draws random numbers"
    return ""


def _set_from_outside(source: Source, owner: cst.ClassDef) -> str:
    """The line where the script changes the data set from outside while workers have copies of it."""
    inside = set(below(owner))
    own = {name[5:] for one in inside for name, _ in binding(one) if name.startswith("self.")}
    for one in source.nodes:
        if one not in inside and isinstance(one, cst.Assign | cst.AugAssign):
            for name, _ in binding(one):
                if "." in name and not name.startswith("self.") and name.split(".")[-1] in own:
                    return f"line {source.line(one)} changes `{name}`, and workers would go on with their copies"
    return ""


def _changes_outside(source: Source, call: cst.Call) -> str:
    """The name of an outside variable that a call in a function changes in place."""
    function = function_of(source, call)
    if function is None or not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _CHANGING:
        return ""
    name = dotted(call.func.value).partition(".")[0]
    if not name or name == "self" or bindings(function, name):
        return ""
    return name


def changed_meanwhile(source: Source, call: cst.Call, owner: cst.ClassDef | None) -> str:
    """The line where the script changes an input of the data set, after the loader was made or in a function."""
    names = {name for part in _made_of(source, call) for name in _read(source, part)}
    own = set(below(owner)) if owner is not None else set()
    if owner is not None:
        bound = {name for one in own for name, _ in binding(one)}
        names |= _read(source, owner) - bound - {"self"}
    for one in source.nodes:
        if one in own or not isinstance(one, cst.Assign | cst.AugAssign | cst.Call):
            continue
        if source.span(one)[0] < source.span(call)[1] and function_of(source, one) is function_of(source, call):
            continue
        if (name := _changed_name(one)) in names and name and not _is_made_there(source, one, name):
            return f"line {source.line(one)} changes `{name}`, and workers would go on with their copies"
    return ""


def _is_made_there(source: Source, one: cst.CSTNode, name: str) -> bool:
    """Whether a name stands for an array that the same function makes, so that no other code has it yet."""
    function = function_of(source, one)
    if function is None or name in parameters(function):
        return False
    made = [part for part in bindings(function, name) if part is not one]
    whole = [
        part.value for part in made if isinstance(part, cst.Assign)
        if len(part.targets) == 1 and isinstance(part.targets[0].target, cst.Name)
    ]  # fmt: skip
    return (
        bool(whole)
        and not any(isinstance(part, cst.Global | cst.Nonlocal) for part in made)
        and all(
            isinstance(value, cst.Call) and called(value) in _NEW and qualified(source, value.func) for value in whole
        )
    )


def _shares_handle(source: Source, body: cst.CSTNode) -> str:
    """The reason if samples are read through a file or a connection that the script opened."""
    for name in sorted(_read(source, body)):
        for one in bindings(source.module, name):
            value = one.value if isinstance(one, cst.Assign) else None
            if isinstance(value, cst.Call) and called(value) in _HANDLES and function_of(source, one) is None:
                return f"`{name}` is opened by the script, and processes would share it"
    return ""


def draws_next_to(source: Source, body: cst.CSTNode) -> str:
    """The reason if samples are made by a function of another file of the script that draws or keeps something."""
    for call in calls(body):
        parts = qualified(source, call.func).lstrip(".").split(".")
        file = source.path.parent.joinpath(*parts[:-1]).with_suffix(".py") if len(parts) > 1 else None
        if file is None or not file.is_file():
            continue
        try:
            text = file.read_text("utf-8")
        except (OSError, ValueError):
            return f"`{called(call)}` is in {file.name}, which cannot be read"
        if _KEEPS.search(text):
            return f"`{called(call)}` is in {file.name}, which draws random numbers or keeps something"
    return ""


def _read(source: Source, node: cst.CSTNode) -> set[str]:
    """The names in a node that stand for values, not for attributes or keywords."""
    found = set()
    for one in below(node):
        above = source.parent(one)
        attribute = isinstance(above, cst.Attribute) and above.attr is one
        keyword = isinstance(above, cst.Arg) and above.keyword is one
        if isinstance(one, cst.Name) and not attribute and not keyword:
            found.add(one.value)
    return found


def _made_of(source: Source, call: cst.Call) -> list[cst.CSTNode]:
    """What the data set of a loader is made of: the arguments of its call."""
    arg = argument(call, "dataset", 0)
    if arg is None:
        return []
    value: cst.CSTNode = arg.value
    if isinstance(value, cst.Name):
        made = [one for one in bindings(source.module, value.value) if isinstance(one, cst.Assign)]
        values = [one.value for one in made]
    else:
        values = [arg.value]
    return [one.value for made_by in values if isinstance(made_by, cst.Call) for one in made_by.args]


def _changed_name(node: cst.CSTNode) -> str:
    """The variable into which a statement writes, or on which a call works in place."""
    if isinstance(node, cst.Call):
        if not isinstance(node.func, cst.Attribute):
            return ""
        method = node.func.attr.value
        changes = method in _CHANGING or (method.endswith("_") and not method.endswith("__"))
        return root(node.func.value) if changes else ""
    targets = [one.target for one in node.targets] if isinstance(node, cst.Assign) else []
    if isinstance(node, cst.AugAssign):
        return root(node.target)
    return next((root(one) for one in targets if isinstance(one, cst.Subscript | cst.Attribute)), "")


def _changes_own(call: cst.Call) -> bool:
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _CHANGING:
        return False
    return dotted(call.func.value).startswith("self.")


def _is_seeded(source: Source, call: cst.Call) -> bool:
    """Whether a draw is from a generator that the same function seeded, so that every process draws the same."""
    if called(call) in _SEEDED:
        return bool(call.args)
    given = argument(call, "generator")
    name = dotted(given.value) if given is not None else dotted(call.func).partition(".")[0]
    made = [one for one in bindings(scope_of(source, call), name) if isinstance(one, cst.Assign)]
    return (
        len(made) == 1
        and isinstance(made[0].value, cst.Call)
        and (
            (called(made[0].value) in {*_SEEDED, "manual_seed"} and bool(made[0].value.args))
            or _is_seeded_later(source, made[0], made[0].value, name)
        )
        and scope_of(source, made[0]) is scope_of(source, call)
        and scope_of(source, call) is not source.module
    )


def _is_seeded_later(source: Source, made: cst.Assign, value: cst.Call, name: str) -> bool:
    """Whether `g = torch.Generator()` is followed by `g.manual_seed(n)` right away."""
    line = source.parent(made)
    block = source.parent(line) if line is not None else None
    if called(value) != "Generator" or not isinstance(block, cst.IndentedBlock):
        return False
    behind = list(block.body)[list(block.body).index(line) + 1 :][:1]  # type: ignore[arg-type]
    return any(
        dotted(call.func) == f"{name}.manual_seed" and bool(call.args) and isinstance(source.parent(call), cst.Expr)
        for one in behind
        for call in calls(one)
    )


def _writes_outside(source: Source, node: cst.Assign | cst.AugAssign) -> str:
    """The name of a container outside of the function that a statement writes into."""
    function = function_of(source, node)
    targets = [one.target for one in node.targets] if isinstance(node, cst.Assign) else [node.target]
    for target in targets:
        if isinstance(target, cst.Subscript) and function is not None and (name := root(target.value)) != "self":
            made = [one for one in bindings(function, name) if one is not node]
            if name and not made:
                return name
    return ""


def _reads(owner: cst.ClassDef, node: cst.CSTNode) -> bool:
    """Whether a node is in one of the methods that a worker runs; a setter that the main process calls is not."""
    called_by_main = {"set_epoch", "__init__", "reset", "setup", "prepare"}
    return any(node in set(below(one)) for name, one in methods(owner).items() if name not in called_by_main)


def _closed_by_with(source: Source, call: cst.Call) -> bool:
    return any(isinstance(above, cst.WithItem) for above in source.ancestors(call)) or _chained(source, call)


def _chained(source: Source, call: cst.Call) -> bool:
    above = source.parent(call)
    return isinstance(above, cst.Attribute) and above.attr.value in ("read", "readlines")
