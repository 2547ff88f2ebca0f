"""What a data set or a collate function would do in another way in a worker process than in the main one."""

from __future__ import annotations

import libcst as cst

from gpudoc.fix.flow import FILLING
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
    local_functions,
    methods,
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
_SEEDED = frozenset({"default_rng", "RandomState", "Random"})


def is_unsharded(source: Source, owner: cst.ClassDef) -> bool:
    """Whether a data set that can only be iterated gives each worker all of its samples."""
    return bool(ITERABLES & set(bases(source, owner))) and "get_worker_info" not in {
        one.value for one in below(owner) if isinstance(one, cst.Name)
    }


def why_not_in_workers(source: Source, call: cst.Call, owner: cst.ClassDef | None) -> str:
    """What a worker would do in another way than the main process."""
    context = argument(call, "multiprocessing_context")
    if context is not None:
        return "the loader says how its processes start, which may need more than a number"
    drawing = sorted(word for word in words(source) if _DRAWS.match(word) and word not in _NOT_DRAWS)
    if drawing:
        return f"`{drawing[0]}` draws random numbers, and a worker draws others than the main process"
    collate = argument(call, "collate_fn", 6)
    bodies: list[cst.CSTNode] = [owner] if owner is not None else []
    if collate is not None:
        bodies += [collate.value, *local_functions(source, dotted(collate.value).rsplit(".", 1)[-1])]
    if owner is not None and (reason := _calls_unknown(source, owner) or _set_from_outside(source, owner)):
        return reason
    for body in bodies:
        if reason := differs_in_worker(source, body, depth=0):
            return reason
    return ""


def differs_in_worker(source: Source, body: cst.CSTNode, *, depth: int) -> str:
    """Why the code of a class or a function would give something else in a worker; '' where nothing says so."""
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
    """Whether a call draws random numbers that another process would draw in another way."""
    if local_functions(source, called(call)) and not qualified(source, call.func):
        return False
    parts = f"{qualified(source, call.func)}.{dotted(call.func)}.{called(call)}".split(".")
    return any(RANDOM.fullmatch(part) for part in parts) and not _is_seeded(source, call)


def _calls_unknown(source: Source, owner: cst.ClassDef) -> str:
    """A function of this file that draws, where a data set calls what it was given: `self.transform(x)`."""
    own = methods(owner)
    given = [
        call
        for call in calls(owner)
        if dotted(call.func).count(".") == 1 and dotted(call.func).startswith("self.") and called(call) not in own
    ]
    if not given:
        return ""
    for function in source.nodes:
        if not isinstance(function, cst.FunctionDef) or function.name.value == "forward":
            continue
        for call in calls(function):
            if _draws(source, call) and call not in set(calls(owner)):
                return f"`{source.code(given[0].func)}` may be `{function.name.value}`, which draws random numbers"
    return ""


def _set_from_outside(source: Source, owner: cst.ClassDef) -> str:
    """Where the script changes the data set from outside while workers have copies of it."""
    inside = set(below(owner))
    own = {name[5:] for one in inside for name, _ in binding(one) if name.startswith("self.")}
    for one in source.nodes:
        if one not in inside and isinstance(one, cst.Assign | cst.AugAssign):
            for name, _ in binding(one):
                if "." in name and not name.startswith("self.") and name.split(".")[-1] in own:
                    return f"line {source.line(one)} changes `{name}`, and workers would go on with their copies"
    return ""


def _changes_own(call: cst.Call) -> bool:
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _CHANGING:
        return False
    return dotted(call.func.value).startswith("self.")


def _is_seeded(source: Source, call: cst.Call) -> bool:
    """Whether a draw is from a generator that the same function made from a seed, so that it is the same anywhere."""
    if called(call) in _SEEDED:
        return bool(call.args)
    given = argument(call, "generator")
    name = dotted(given.value) if given is not None else dotted(call.func).partition(".")[0]
    made = [one for one in bindings(scope_of(source, call), name) if isinstance(one, cst.Assign)]
    return (
        len(made) == 1
        and isinstance(made[0].value, cst.Call)
        and called(made[0].value) in {*_SEEDED, "manual_seed"}
        and bool(made[0].value.args)
        and scope_of(source, made[0]) is scope_of(source, call)
        and scope_of(source, call) is not source.module
    )


def _writes_outside(source: Source, node: cst.Assign | cst.AugAssign) -> str:
    """The name of a container outside of the function that a statement writes into."""
    function = function_of(source, node)
    targets = [one.target for one in node.targets] if isinstance(node, cst.Assign) else [node.target]
    for target in targets:
        if isinstance(target, cst.Subscript) and isinstance(target.value, cst.Name) and function is not None:
            made = [one for one in bindings(function, target.value.value) if one is not node]
            if not made:
                return target.value.value
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
