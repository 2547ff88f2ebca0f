"""Finds the object of 'package.module:name'; imports only modules that the user allowed."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.shortage import is_out_of_memory

ALWAYS_ALLOWED = ("torch", "gpudoc.workload")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Where targets may come from: the config's own folder, torch, and the packages listed under `imports`."""

    folder: Path
    packages: tuple[str, ...]


def resolve(target: str, allowed: Allowed) -> Callable[..., object]:
    """The class or function that `target` names; GpudocError if it is not allowed, not found or not callable."""
    module_name, _, attribute = target.partition(":")
    found = _import(module_name, target, allowed)
    if attribute not in vars(found):
        names = [name for name in vars(found) if not name.startswith("_")]
        close = difflib.get_close_matches(attribute, names, n=1)
        hint = f"did you mean {module_name}:{close[0]}?" if close else ""
        raise GpudocError(f"{target}: {module_name} has no {attribute!r}", hint=hint)
    thing = vars(found)[attribute]
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        raise GpudocError(f"{target}: {type(thing).__name__}, not a class or a function")
    home = getattr(thing, "__module__", None) or module_name
    if not _is_allowed(home, allowed):
        raise GpudocError(f"{target}: comes from {home}, which this config may not import", hint=_how_to_allow(home))
    return thing


def call(target: str, function: Callable[..., object], arguments: Mapping[str, object]) -> object:
    """`function(**arguments)`; a wrong argument or an error in the user's code becomes a GpudocError with its place."""
    check_arguments(target, function, arguments)
    try:
        return function(**arguments)
    except GpudocError:
        raise
    except Exception as problem:
        if is_out_of_memory(problem):
            raise
        raise GpudocError(
            f"{target} failed: {type(problem).__name__}: {problem}{_place(problem)}", exit_code=ExitCode.NOT_DONE
        ) from problem


def check_arguments(target: str, function: Callable[..., object], arguments: Mapping[str, object]) -> None:
    """Raises GpudocError with the nearest valid name if `function` does not take `arguments`."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**arguments)
    except TypeError as problem:
        names = [name for name in signature.parameters if name != "self"]
        unknown = [name for name in arguments if name not in names]
        close = difflib.get_close_matches(unknown[0], names, n=1) if unknown else []
        hint = f"did you mean {close[0]!r}?" if close else f"it takes: {', '.join(names) or 'nothing'}"
        raise GpudocError(f"{target}: {problem}", hint=hint) from None


def takes(function: Callable[..., object], parameter: str) -> bool:
    """Whether `function` has a parameter of exactly that name."""
    try:
        return parameter in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _import(module_name: str, target: str, allowed: Allowed) -> object:
    if not _is_allowed(module_name, allowed):
        _check_exists(module_name.partition(".")[0], target, allowed)
        raise GpudocError(
            f"{target}: this config may not import {module_name.partition('.')[0]}", hint=_how_to_allow(module_name)
        )
    # a built-in workload has the current folder as its own, but needs nothing from it
    if not _is_one_of(module_name, ALWAYS_ALLOWED) and str(allowed.folder) not in sys.path:
        sys.path.insert(0, str(allowed.folder))
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        missing = problem.name or module_name
        where = f" (looked in {allowed.folder} and the installed packages)" if module_name.startswith(missing) else ""
        hint = f"install it, or check the spelling of {missing!r}"
        raise GpudocError(f"{target}: no module named {missing!r}{where}", hint=hint) from None
    except Exception as problem:
        raise GpudocError(
            f"{target}: importing {module_name} failed: {type(problem).__name__}: {problem}{_place(problem)}"
        ) from problem


def _check_exists(package: str, target: str, allowed: Allowed) -> None:
    """GpudocError with the nearest name when nothing is called `package`: trust is not the question then."""
    try:
        if package in sys.modules or importlib.util.find_spec(package) is not None:
            return
    except (ImportError, ValueError):
        return
    beside = [path.stem for path in allowed.folder.glob("*.py")]
    close = difflib.get_close_matches(package, [*beside, *ALWAYS_ALLOWED, *allowed.packages], n=1)
    rest = target.removeprefix(package)
    hint = f"did you mean {close[0]}{rest}?" if close else f"put {package}.py next to the config, or install {package}"
    raise GpudocError(f"{target}: no module {package!r} in {allowed.folder}, and none is installed", hint=hint)


def _is_allowed(module_name: str, allowed: Allowed) -> bool:
    if _is_one_of(module_name, (*ALWAYS_ALLOWED, *allowed.packages)):
        return True
    first = module_name.partition(".")[0]
    if first in sys.stdlib_module_names:
        return False
    return (allowed.folder / f"{first}.py").is_file() or (allowed.folder / first).is_dir()


def _is_one_of(module_name: str, packages: Iterable[str]) -> bool:
    return any(module_name == name or module_name.startswith(f"{name}.") for name in packages)


def _how_to_allow(module_name: str) -> str:
    return f"imports: [{module_name.partition('.')[0]}]   in the config, if you trust that package"


def _place(problem: BaseException) -> str:
    frames = traceback.extract_tb(problem.__traceback__)
    own = str(Path(__file__).parent)
    theirs = [frame for frame in frames if not frame.filename.startswith((own, "<frozen"))]
    return f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""
