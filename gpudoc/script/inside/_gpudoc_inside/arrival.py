"""Call a function as soon as a module has been imported by anybody; nothing is imported for it."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from importlib.machinery import ModuleSpec
from typing import Any, Callable

Action = Callable[[Any], None]


class Arrivals:
    """A finder that finds nothing itself: it asks the others and adds to what they load."""

    def __init__(self, actions: dict[str, Action]) -> None:
        self._actions = actions
        self._asking: set[tuple[int, str]] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """What the other finders find for a module that is waited for; None for any other module."""
        asking = (threading.get_ident(), name)
        # another finder of this kind asks all finders too, this one among them
        if name not in self._actions or asking in self._asking:
            return None
        self._asking.add(asking)
        try:
            return self._ask(name, path, target)
        finally:
            self._asking.discard(asking)

    def _ask(self, name: str, path: Any, target: Any) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: Any = None if find is None else find(name, path, target)
            if spec is None:
                continue
            if hasattr(spec.loader, "exec_module"):
                # a spec that cannot be changed loads the module all the same
                with suppress(Exception):
                    spec.loader = Watched(spec.loader, self._arrived)
            found: ModuleSpec = spec
            return found
        return None

    def _arrived(self, module: Any) -> None:
        # a module may be looked for and not be imported, or fail the first time: it is waited for until it is there
        action = self._actions.pop(module.__name__, None)
        if action is not None:
            action(module)


class Watched:
    """A loader with something to be done after it; the module that it loads has the loader itself."""

    def __init__(self, loader: Any, arrived: Action) -> None:
        self._loader, self._arrived = loader, arrived

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> Any:
        """What the loader creates; None leaves it to Python."""
        create = getattr(self._loader, "create_module", None)
        return None if create is None else create(spec)

    def exec_module(self, module: Any) -> None:
        """Load as the loader does, then say so."""
        with suppress(Exception):
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._arrived(module)


def wait_for(actions: dict[str, Action]) -> None:
    """Run each action with its module once that has been imported; at once where it has been already."""
    waiting = {}
    for name, action in actions.items():
        if name in sys.modules:
            action(sys.modules[name])
        else:
            waiting[name] = action
    sys.meta_path.insert(0, Arrivals(waiting))
