"""The page of what Python offers, from the docstrings of gpudoc.api."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from types import ModuleType

from tools.handbook.page import Page, fenced

# an annotation is shown as text, a default as it is
_QUOTED = re.compile(r"(?<=: |> )'([^']*)'")
_OPTIONS = re.compile(r"Unpack\[(\w+)\]")


def api_pages() -> list[Page]:
    """The page of gpudoc.api."""
    if importlib.util.find_spec("gpudoc.api") is None:
        return []
    return [page_of(importlib.import_module("gpudoc.api"))]


def page_of(module: ModuleType) -> Page:
    """What `module` offers under `__all__`: its own words, then each function and class with signature and options."""
    parts = [inspect.getdoc(module) or ""]
    for name in module.__all__:
        one = getattr(module, name)
        signature = "" if inspect.isclass(one) else _QUOTED.sub(r"\1", str(inspect.signature(one)))
        kind = "class" if inspect.isclass(one) else "def"
        parts.append(f"## `{name}`\n\n" + fenced(f"{kind} {name}{signature}", "python"))
        parts.append(inspect.getdoc(one) or "")
        if asked := _OPTIONS.search(signature):
            options = getattr(module, asked[1])
            parts.append(f"{inspect.getdoc(options)}\n\n" + "\n".join(_option(*one) for one in _fields(options)))
    return Page("api.md", "From Python", "\n\n".join(part.rstrip() for part in parts))


def _fields(options: type) -> list[tuple[str, str]]:
    return [(name, str(getattr(kind, "__forward_arg__", kind))) for name, kind in options.__annotations__.items()]


def _option(name: str, kind: str) -> str:
    return f"- `{name}`: `{kind}`"
