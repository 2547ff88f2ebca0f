"""Python imports this at its start when the folder is on PYTHONPATH: the next sitecustomize first, then the hook.

A script may start any Python, 2.7 too: what is here has to be read by it, and does nothing in one that is too old.
"""

import os
import sys

FOLDER = "GPUDOC_SCRIPT_FOLDER"
OLDEST = (3, 8)


def hand_on(own):
    # type: (str) -> None
    """Run the sitecustomize that would have been found without this one; what it raises is for Python to tell."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    others = [entry for entry in sys.path if os.path.realpath(entry) != own]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def enter(own):
    # type: (str) -> None
    """Start the hook where it was asked for, and leave the path as the script would have it."""
    try:
        folder = os.environ.get(FOLDER, "")
        if folder and os.path.isdir(folder):
            __import__("_gpudoc_inside").start(folder)
    except Exception:
        # whatever is wrong with the hook, the script must not notice
        sys.modules.pop("_gpudoc_inside", None)
    finally:
        leave(own)


def leave(own):
    # type: (str) -> None
    """Take this folder from the path."""
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != own]


if __name__ == "sitecustomize":
    _own = os.path.realpath(os.path.dirname(os.path.abspath(__file__)))
    if sys.version_info >= OLDEST:
        try:
            hand_on(_own)
        finally:
            enter(_own)
    else:
        leave(_own)
        sys.modules.pop("sitecustomize", None)
        # that there is none is for Python to pass over, as without this one
        __import__("sitecustomize")
