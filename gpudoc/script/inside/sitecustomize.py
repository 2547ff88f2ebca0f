"""Python imports this at its start when the folder is on PYTHONPATH: the next sitecustomize first, then the hook.

A script may start any Python, even 2.7: each must be able to read this file, which does nothing in an old version.
"""

import os
import sys

FOLDER = "GPUDOC_SCRIPT_FOLDER"
OLDEST = (3, 8)


def hand_on(own):
    # type: (str) -> None
    """Run the sitecustomize that Python would have found without this one; Python itself reports its errors."""
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
    """Start the hook if it was asked for, and restore the path that the script expects."""
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
        # Python ignores it if there is none, as it would without this file
        __import__("sitecustomize")
