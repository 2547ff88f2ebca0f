"""Python imports this at its start when the folder is on PYTHONPATH: the next sitecustomize first, then the hook."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

FOLDER = "GPUDOC_SCRIPT_FOLDER"


def hand_on(own: str) -> None:
    """Run the sitecustomize that would have been found without this one; what it raises is for Python to tell."""
    others = [entry for entry in sys.path if os.path.realpath(entry) != own]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def enter(own: str) -> None:
    """Start the hook where it was asked for, and leave the path as the script would have it."""
    try:
        folder = os.environ.get(FOLDER, "")
        if folder and os.path.isdir(folder):
            importlib.import_module("_gpudoc_inside").start(folder)
    except Exception:
        # whatever is wrong with the hook, the script must not notice
        sys.modules.pop("_gpudoc_inside", None)
    finally:
        sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != own]


if __name__ == "sitecustomize":
    _own = os.path.realpath(os.path.dirname(os.path.abspath(__file__)))
    try:
        hand_on(_own)
    finally:
        enter(_own)
