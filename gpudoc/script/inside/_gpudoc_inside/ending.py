"""How a process ends: the exception that ended it, and its last steps, also where multiprocessing started it."""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from typing import Any, Callable

from . import memory
from .report import HookReport

_OWN = os.path.dirname(os.path.abspath(__file__))
_HEAD, _TAIL = 1000, 3000
_MAX_LINKS = 5


def watch(report: HookReport, finish: Callable[[], None]) -> None:
    """Tell of the end of this process, and of each that it forks."""
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
            # a child of multiprocessing leaves without atexit; what was registered before its start is forgotten
            util.register_after_fork(report, lambda _: util.Finalize(None, end, exitpriority=0))

    sys.excepthook = excepthook
    atexit.register(end)
    os.register_at_fork(after_in_child=forked)


def describe(problem: BaseException) -> dict[str, Any]:
    """An exception and those that led to it, the traceback's last lines, and the allocator's numbers."""
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
        allocator = memory.allocator()
    except Exception:
        # a lost device answers nothing
        allocator = {}
    text = "".join(traceback.format_exception(type(problem), problem, problem.__traceback__))
    return {"chain": chain, "traceback": short(text), "allocator": allocator}


def links(problem: BaseException) -> list[BaseException]:
    """The exception and those that led to it, as a traceback would show them."""
    found: list[BaseException] = []
    link: Any = problem
    while link is not None and link not in found:
        found.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return found


def short(text: str) -> str:
    """Beginning and end of a text, in whole lines: a launcher puts the traceback of a rank before what it said."""
    if len(text) <= _HEAD + _TAIL:
        return text
    # half a line may hold half a secret, which nothing shows to be one
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
