"""Where the steps of a script spend their time, by lines of the user's own code, and what they leave in memory.

A thread looks at the main thread's stack some hundred times a second: the line is found by measuring, not by reading.
"""

from __future__ import annotations

import ast
import os
import sys
import threading
import time
from typing import Any, Iterator

from .backward_calls import BackwardCalls
from .loaders import is_users
from .padding import PaddedInputs
from .passes import PassCounter
from .report import HookReport, is_worker, peaks

_OWN = os.path.dirname(os.path.abspath(__file__))
_EVERY_S = 0.004
# how long this thread waits before the main thread must stop for it: with Python's default of 5 ms it would only look
# when a call of torch releases the interpreter by itself, and would never see the Python between two such calls
_WAIT_S = 1e-5
_MOST_LINES = 64
_MOST_WEIGHT = 250
_TOLD_EVERY_S = 2.0
# growth is measured between these two steps; the least growth that counts, in graph nodes or items
_EARLY, _LATE, _GROWN = 6, 14, 6
_MOST_NODES = 20_000
# how many looks it takes before passes of the busiest lines are counted, and the share of looks that makes a line busy
_ENOUGH_LOOKS, _BUSY = 25, 0.05
# functions of torch: a module is called, autograd runs, an optimizer steps
_COMPUTES = frozenset({"_call_impl", "_engine_run_backward", "profile_hook_step", "wrapper"})
# a module in evaluation mode in these first steps is a frozen part or a first check, not an evaluation
_SETTLED = 2


class LineSampler:
    """Looks at one process that trains if the order asks for lines."""

    def __init__(self, report: HookReport, backwards: BackwardCalls) -> None:
        self._report, self._backwards = report, backwards
        self.on = bool(report.order.get("lines"))
        self._counts: dict[tuple[str, int], int] = {}
        self._own: dict[tuple[str, int], int] = {}
        self._looks = self._computing = 0
        self._main = threading.main_thread().ident
        self._done = False
        self._begun = False
        self._told_at = 0.0
        self._anomaly = False
        self._pending: set[tuple[str, int]] = set()
        self._count = self._threads = 0
        # after how many steps the first evaluation began
        self._evaluated_after: int | None = None
        # the peak when it began, and the growth of the peak until the next step
        self._peak: int | None = None
        self._evaluation_bytes: int | None = None
        self._once: set[tuple[str, int]] = set()
        self._frozen: set[tuple[str, int]] = set()
        self._has_evaluation: bool | None = None
        self._no_backward: dict[tuple[str, int], None] = {}
        self._early: dict[tuple[str, str], int] = {}
        self._keeps: dict[tuple[str, int], None] = {}
        self._counter, self._inputs = PassCounter(_is_users), PaddedInputs()
        report.undo.append(self._counter.stop)

    def torch_is_here(self, torch: Any) -> None:
        """Listen to each call of backward, and to each module that runs in evaluation mode with gradients."""
        if not self.on:
            return
        is_on, anomaly = torch.is_grad_enabled, torch.is_anomaly_enabled

        def heard(_tensors: Any) -> None:
            self._pending.clear()
            self._once.clear()
            self._anomaly = self._anomaly or bool(anomaly())

        def runs(module: Any, args: Any) -> None:
            if self._done or self._report.off:
                return
            if module.training:
                if self._inputs.is_first() and (line := _called_at()) is not None:
                    with self._report.guard("the inputs of a step"), torch.no_grad():
                        self._inputs.called(line, args, torch)
                return
            with_grad = is_on()
            if not with_grad and self._evaluated_after is not None:
                return
            line = _called_at()
            if line is None:
                return
            self._evaluates(line)
            if with_grad and line in self._pending:
                self._no_backward[line] = None
            elif with_grad:
                self._pending.add(line)

        self._backwards.listen(heard)
        handle = torch.nn.modules.module.register_module_forward_pre_hook(runs)
        self._report.undo.append(handle.remove)

    def awaits(self, seconds: float) -> bool:
        """Whether the look goes on after `seconds`: the source evaluates, but the steps have not reached that."""
        if not self.on or self._evaluated_after is not None:
            return False
        if self._has_evaluation is None:
            self._has_evaluation = any(map(_evaluates_in, _users_files()))
        return self._has_evaluation and bool(seconds < self._report.order.get("evaluation_s", 0.0))

    def _evaluates(self, line: tuple[str, int]) -> None:
        # a frozen part of a model runs once in each step, from the first step on
        is_new = self._count >= _SETTLED and line not in self._frozen
        if self._evaluated_after is None and (line in self._once or is_new):
            self._evaluated_after, self._peak = self._count, peaks()["peak_bytes"]
        self._once.add(line)
        if self._count < _SETTLED:
            self._frozen.add(line)

    def stepped(self, count: int) -> None:
        """Begin after the first step; compare what is kept after two steps."""
        if not self.on or self._done or is_worker():
            return
        self._count, self._threads = count, sys.modules["torch"].get_num_threads()
        self._once.clear()
        self._inputs.stepped()
        if self._peak is not None and self._evaluation_bytes is None:
            self._evaluation_bytes = (peaks()["peak_bytes"] or self._peak) - self._peak
        if self._counter.is_on:
            self._counter.stepped(sys._getframe(1))
        elif count > _LATE and self._looks >= _ENOUGH_LOOKS and not self._counter.is_done:
            busy = [line for line, looks in dict(self._counts).items() if looks >= _BUSY * self._looks]
            self._counter.begin(busy, sys._getframe(1))
        if not self._begun:
            self._begun, self._told_at = True, time.perf_counter()
            threading.Thread(target=self._watch, name="gpudoc-lines", daemon=True).start()
        elif count == _EARLY:
            self._early = dict(_sizes(sys._getframe(1)))
        elif count == _LATE:
            late = dict(_sizes(sys._getframe(1)))
            grown = [name for name, size in late.items() if size >= self._early.get(name, size) + _GROWN]
            for file, name in grown:
                self._keeps.update(dict.fromkeys((file, line) for line in _lines_that_keep(file, name)))

    def tell(self) -> None:
        """Report the lines: after the ordered steps have run, or at the end."""
        if not self.on or self._done or not self._begun:
            return
        self._done = True
        self._counter.stop()
        self._say()

    def _say(self) -> None:
        self._report.tell(
            "lines",
            looks=self._looks,
            hot=_most(self._counts),
            own=_most(self._own),
            passes=[[file, line, round(count, 2)] for (file, line), count in self._counter.passes.items()],
            padded=self._inputs.found,
            keeps=[list(one) for one in list(self._keeps)],
            no_backward=[list(one) for one in list(self._no_backward)],
            anomaly=self._anomaly,
            threads=self._threads,
            computing=self._computing,
            evaluated_after=self._evaluated_after,
            evaluation_bytes=self._evaluation_bytes,
            awaited=bool(self._has_evaluation) and self._evaluated_after is None,
        )

    def _watch(self) -> None:
        last, usual_s = time.perf_counter(), sys.getswitchinterval()
        try:
            self._look_until_done(last, usual_s)
        finally:
            sys.setswitchinterval(usual_s)

    def _look_until_done(self, last: float, usual_s: float) -> None:
        while not self._done and not self._report.off:
            sys.setswitchinterval(_WAIT_S)
            time.sleep(_EVERY_S)
            # a look is not interrupted
            sys.setswitchinterval(usual_s)
            now = time.perf_counter()
            # a call that holds the interpreter, such as a tensor made of lists, is seen once when it ends
            weight, last = weight_of(now - last), now
            frame = sys._current_frames().get(self._main or 0)
            if frame is None:
                return
            if self._counter.is_on:
                # no looks now: a step whose lines are counted takes longer
                continue
            self._looks += weight
            self._computing += weight * _computes(frame)
            lines = list(_lines(frame))
            for line in set(lines):
                self._counts[line] = self._counts.get(line, 0) + weight
            for line in lines[:1]:
                self._own[line] = self._own.get(line, 0) + weight
            del frame
            if not self._done and time.perf_counter() - self._told_at > _TOLD_EVERY_S:
                # report now and then, so that a look which is ended early still leaves its lines
                self._told_at = time.perf_counter()
                with self._report.guard("a look"):
                    self._say()


def _most(counts: dict[tuple[str, int], int]) -> list[list[Any]]:
    most = sorted(dict(counts).items(), key=lambda item: -item[1])[:_MOST_LINES]
    return [[file, line, count] for (file, line), count in most]


def weight_of(seconds: float) -> int:
    """The number of looks that one look counts for if it came `seconds` after the last one."""
    return max(1, min(_MOST_WEIGHT, round(seconds / _EVERY_S)))


def _computes(frame: Any) -> bool:
    """Whether a module, a backward or an optimizer is on this stack."""
    while frame is not None:
        code = frame.f_code
        if code.co_name in _COMPUTES and not _is_users(code.co_filename):
            return True
        frame = frame.f_back
    return False


def _lines(frame: Any) -> Iterator[tuple[str, int]]:
    while frame is not None:
        file = frame.f_code.co_filename
        # between two instructions a frame may have no line
        if frame.f_lineno is not None and _is_users(file):
            yield os.path.abspath(file), frame.f_lineno
        frame = frame.f_back


def _is_users(file: str) -> bool:
    return is_users(file) and not file.startswith(("<", _OWN))


def _called_at() -> tuple[str, int] | None:
    """The user's line that called the outermost running module; None if the hook belongs to an inner module."""
    frame: Any = sys._getframe(1)
    line, calls = None, 0
    while frame is not None:
        file = frame.f_code.co_filename
        calls += frame.f_code.co_name == "_call_impl" and not _is_users(file)
        if calls > 1:
            return None
        if line is None and _is_users(file):
            line = os.path.abspath(file), frame.f_lineno
        frame = frame.f_back
    return line


def _users_files() -> Iterator[str]:
    """The files of the script: in its own folder or the one that it was started in, without installed packages."""
    here, main = os.getcwd(), getattr(sys.modules.get("__main__"), "__file__", None)
    own = os.path.dirname(os.path.abspath(main)) if main else here
    folders = (os.path.join(own, ""), os.path.join(here, ""))
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and _is_users(file) and os.path.abspath(file).startswith(folders):
            yield file


def _evaluates_in(file: str) -> bool:
    """Whether a file puts a model into evaluation."""
    tree = _tree_of(file)
    return tree is not None and any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "eval"
        and not node.args
        for node in ast.walk(tree)
    )


def _tree_of(file: str) -> ast.Module | None:
    try:
        with open(file, "rb") as source:
            return ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        return None


def _sizes(frame: Any) -> Iterator[tuple[tuple[str, str], int]]:
    """(file, name) and size of each variable on this stack that may grow: nodes of its graph, or its items."""
    tensor = sys.modules["torch"].Tensor
    while frame is not None:
        file = frame.f_code.co_filename
        if _is_users(file):
            known = dict(frame.f_locals)
            known.update(frame.f_globals if frame.f_code.co_name == "<module>" else {})
            for name, value in known.items():
                held = {name: value}
                if getattr(type(value), "__module__", "") == frame.f_globals.get("__name__"):
                    held.update((f"{name}.{key}", item) for key, item in getattr(value, "__dict__", {}).items())
                for path, item in held.items():
                    size = _size_of(item, tensor)
                    if size:
                        yield (os.path.abspath(file), path), size
        frame = frame.f_back


def _size_of(value: Any, tensor: Any) -> int:
    if isinstance(value, tensor):
        return _nodes(value.grad_fn) if value.grad_fn is not None else 0
    if isinstance(value, list) and value and isinstance(value[-1], tensor) and value[-1].grad_fn is not None:
        return len(value)
    return 0


def _nodes(first: Any) -> int:
    seen, waiting = {first}, [first]
    while waiting and len(seen) < _MOST_NODES:
        for below, _ in waiting.pop().next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                waiting.append(below)
    return len(seen)


def _lines_that_keep(file: str, name: str) -> Iterator[int]:
    """The lines of a file that add to a variable, or append to it."""
    tree = _tree_of(file)
    if tree is None:
        return
    own = name.rpartition(".")[2]
    for node in ast.walk(tree):
        target: Any = None
        at = getattr(node, "lineno", 0)
        if isinstance(node, ast.AugAssign):
            target = node.target
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
            target = node.targets[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            target = node.func.value
        if (isinstance(target, ast.Name) and target.id == own) or (
            isinstance(target, ast.Attribute) and target.attr == own
        ):
            yield at
