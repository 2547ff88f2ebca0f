"""Something to be done as soon as a module has been imported, whoever imports it; nothing is imported for it."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from typing import Any, Callable

Action = Callable[[Any], None]


class Arrivals:
    """A finder that finds nothing itself: it asks the others and adds to what they load."""

    def __init__(self, actions: dict[str, Action]) -> None:
        self._actions = actions

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """What the other finders find for a module that is waited for; None for any other module."""
        action = self._actions.pop(name, None)
        if action is None:
            return None
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(name, path, target)
            if spec is not None:
                _add(spec.loader, action)
                return spec
        return None


def wait_for(actions: dict[str, Action]) -> None:
    """Run each action with its module once that has been imported; at once where it has been already."""
    waiting = {}
    for name, action in actions.items():
        if name in sys.modules:
            action(sys.modules[name])
        else:
            waiting[name] = action
    sys.meta_path.insert(0, Arrivals(waiting))


def _add(loader: Any, action: Action) -> None:
    execute = loader.exec_module

    def exec_module(module: Any) -> None:
        # the loader is as it was for whoever asks the module for it
        del loader.exec_module
        execute(module)
        action(module)

    loader.exec_module = exec_module
