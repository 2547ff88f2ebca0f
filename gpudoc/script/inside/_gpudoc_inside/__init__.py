"""Watches a training script from inside its process and builds its loaders as ordered; it never changes the rest.

It touches: `DataLoader.__init__` and `__iter__`, `__next__` of its iterators, `autocast.__enter__`, `sys.excepthook`,
torch's global hook after optimizer steps, and, in a trial with a limit, torch's share of the GPU's memory. If the order
asks for a record or lines, also: `torch.autograd.backward`, `torch.save`, a hook of modules, and the seed of all random
numbers, which the script may set afterwards. Standard library only, since the script's Python may be another one.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from contextlib import suppress
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, Callable

from .batches import BatchFeed
from .loaders import Loaders
from .report import HookReport, RankPulse, allocator_numbers, limit_device
from .steps import Steps, watch_autocast

if TYPE_CHECKING:
    from .backward_calls import BackwardCalls
    from .recorder import StateRecorder
    from .sampling import LineSampler

Action = Callable[[Any], None]
_OWN = os.path.dirname(os.path.abspath(__file__))
_HEAD, _TAIL = 1000, 3000
_MAX_LINKS = 5


def start(folder: str) -> HookReport:
    """Wait for torch, in this process and in its forks; before torch, nothing is imported or changed."""
    report = HookReport(folder)
    pulse = RankPulse(report)
    feed = BatchFeed(report, pulse)
    loaders = Loaders(report, feed)
    recorder, sampler, backwards = _asked_for(report)
    steps = Steps(report, feed, pulse, recorder, sampler)

    def torch_is_here(module: object) -> None:
        report.torch_is_here(module)
        limit_device(report, module)
        pulse.builds()
        # backward is wrapped last, after both could register as listeners
        for asked in (recorder, sampler, backwards):
            if asked is not None:
                asked.torch_is_here(module)

    def guarded(action: Action) -> Action:
        def run(module: object) -> None:
            with report.guard(action.__name__):
                action(module)

        return run

    watch_the_end(report, steps.finish)
    wait_for(
        {
            "torch": guarded(torch_is_here),
            **({} if recorder is None else {"numpy": guarded(recorder.numpy_is_here)}),
            "torch.utils.data.dataloader": guarded(loaders.torch_is_here),
            "torchdata.stateful_dataloader.stateful_dataloader": guarded(loaders.torchdata_is_here),
            "torch.optim.optimizer": guarded(steps.torch_is_here),
            "torch.amp.autocast_mode": guarded(watch_autocast(report)),
        }
    )
    return report


def _asked_for(report: HookReport) -> tuple[StateRecorder | None, LineSampler | None, BackwardCalls | None]:
    """The recorder of a training, the sampler of its lines, and the backward calls for both; None if not ordered.

    Most launches order neither, and then these modules are not imported.
    """
    record, lines = report.order.get("record"), report.order.get("lines")
    if not record and not lines:
        return None, None, None
    from .backward_calls import BackwardCalls
    from .recorder import StateRecorder
    from .sampling import LineSampler

    backwards = BackwardCalls(report)
    recorder = StateRecorder(report, backwards) if record else None
    return recorder, LineSampler(report, backwards) if lines else None, backwards


class Arrivals:
    """A finder that finds nothing itself: it asks other finders and adds an action to the modules that they load."""

    def __init__(self, actions: dict[str, Action]) -> None:
        self._actions = actions
        self._asking: set[tuple[int, str]] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec that the other finders return for an awaited module; None for any other module."""
        asking = (threading.get_ident(), name)
        # another finder of this kind also asks all finders, including this one
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
                # a spec that cannot be changed still loads the module
                with suppress(Exception):
                    spec.loader = Watched(spec.loader, self._arrived)
            found: ModuleSpec = spec
            return found
        return None

    def _arrived(self, module: Any) -> None:
        # a module may be found but not imported, or fail at first: its action waits until it is loaded
        action = self._actions.pop(module.__name__, None)
        if action is not None:
            action(module)


class Watched:
    """A loader with an action after loading; the loaded module refers to the original loader."""

    def __init__(self, loader: Any, arrived: Action) -> None:
        self._loader, self._arrived = loader, arrived

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> Any:
        """The module that the loader creates; None leaves it to Python."""
        create = getattr(self._loader, "create_module", None)
        return None if create is None else create(spec)

    def exec_module(self, module: Any) -> None:
        """Load as the loader does, then call the action."""
        with suppress(Exception):
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._arrived(module)


def wait_for(actions: dict[str, Action]) -> None:
    """Run each action with its module once it is imported; at once if it already is."""
    waiting = {}
    for name, action in actions.items():
        if name in sys.modules:
            action(sys.modules[name])
        else:
            waiting[name] = action
    sys.meta_path.insert(0, Arrivals(waiting))


def watch_the_end(report: HookReport, finish: Callable[[], None]) -> None:
    """Report the end of this process and of each of its forks."""
    shown = sys.excepthook

    def excepthook(kind: Any, problem: Any, trace: Any) -> None:
        clean = trace
        if not report.off:
            with report.guard("excepthook"):
                clean = without_own(trace)
                for link in links(problem):
                    link.__traceback__ = without_own(link.__traceback__)
                if not isinstance(problem, KeyboardInterrupt):
                    report.tell("error", **describe(problem))
        shown(kind, problem, clean)

    def end() -> None:
        if not report.off:
            with report.guard("end"):
                finish()

    def forked() -> None:
        report.after_fork()
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            # a child of multiprocessing skips atexit, and forgets finalizers that were registered before its start
            util.register_after_fork(report, lambda _: util.Finalize(None, end, exitpriority=0))

    sys.excepthook = excepthook
    atexit.register(end)
    os.register_at_fork(after_in_child=forked)


def describe(problem: BaseException) -> dict[str, Any]:
    """An exception and the exceptions that led to it, the shortened traceback, and the allocator's numbers."""
    chain = []
    for link in links(problem)[:_MAX_LINKS]:
        number = getattr(link, "errno", None)
        chain.append(
            {
                "types": [kind.__name__ for kind in type(link).__mro__],
                "text": short(str(link)),
                "errno": number if isinstance(number, int) else None,
            }
        )
    try:
        numbers = allocator_numbers()
    except Exception:
        # a lost device does not answer
        numbers = {}
    text = "".join(traceback.format_exception(type(problem), problem, problem.__traceback__))
    return {"chain": chain, "traceback": short(text), "allocator": numbers}


def links(problem: BaseException) -> list[BaseException]:
    """The exception and the exceptions that led to it, as a traceback would show them."""
    found: list[BaseException] = []
    link: Any = problem
    while link is not None and link not in found:
        found.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return found


def short(text: str) -> str:
    """The beginning and the end of a text: a launcher puts the traceback of a rank before its own message."""
    if len(text) <= _HEAD + _TAIL:
        return text
    # the end starts with a whole line: half of a secret could not be recognised as one
    return text[:_HEAD] + "\n...\n" + text[-_TAIL:].partition("\n")[2]


def without_own(trace: Any) -> Any:
    """A traceback without the hook's own frames, as it would be without the hook."""
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OWN):
            kept.append(trace)
        trace = trace.tb_next
    following = None
    for part in reversed(kept):
        part.tb_next = following
        following = part
    return following
