"""Records a training's result bit by bit: each scalar that backward was called on, the batches, and the final state.

Two launches with equal records trained the same: equal parameters and equal generators also have an equal future. The
time that recording takes is measured, so that it can be subtracted from the time of the steps.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import re
import sys
import tempfile
import time
from typing import Any, Iterable

from . import batches
from .backward_calls import BackwardCalls
from .report import HookReport, is_worker

# a root with more numbers is not a loss
_MOST_NUMBERS = 4096
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_MOST_FILES = 10_000
_SEED = 0
# gpudoc ends a launch within some tenths of a second
_HELD_S = 60.0
# the random end of a name that tempfile makes
_DRAWN = re.compile(r"[a-z0-9_]{8}$")


class StateRecorder:
    """Records one process if the order asks for it; only the digest of a tensor is kept."""

    def __init__(self, report: HookReport, backwards: BackwardCalls) -> None:
        self._report, self._backwards = report, backwards
        self.on = bool(report.order.get("record"))
        self.seconds = 0.0
        self._roots: list[str] = []
        self._losses: list[float | None] = []
        self._nudged: set[int] = set()
        self._files: dict[str, None] = {}
        self._optimizers: dict[int, Any] = {}
        self._modules: list[Any] = []
        self._told = False
        if self.on:
            # both sides begin with the same random numbers if the script does not set a seed
            random.seed(_SEED)
            sys.addaudithook(self._heard)

    def torch_is_here(self, torch: Any) -> None:
        """Listen to each call of backward, and to each file that torch writes."""
        if not self.on:
            return
        torch.manual_seed(_SEED)
        save = torch.save
        self._backwards.listen(self._root)

        def saved(value: Any, file: Any, *args: Any, **named: Any) -> Any:
            self._wrote(file)
            return save(value, file, *args, **named)

        if nudge := self._report.order.get("nudge"):
            handle = torch.nn.modules.module.register_module_forward_pre_hook(
                lambda module, _args: self._nudge(torch, module, nudge)
            )
            self._report.undo.append(handle.remove)
            self._nudge_without_modules(torch, nudge)
        torch.save = saved
        self._report.undo.append(lambda: setattr(torch, "save", save))

    def numpy_is_here(self, numpy: Any) -> None:
        """Let both sides begin with the same random numbers of NumPy."""
        if self.on:
            numpy.random.seed(_SEED)

    def stepped(self, optimizer: Any) -> None:
        """Keep what the final state is read from: the optimizer, and, once, the modules whose parameters it holds."""
        if not self.on or id(optimizer) in self._optimizers:
            return
        # this happens once, in a warm-up step, so it is not part of a measured step
        self._optimizers[id(optimizer)] = optimizer
        if not self._modules:
            self._modules = _modules_of(optimizer)

    def tell(self, steps: int) -> None:
        """Report the record once: after the ordered steps have run, or at the end."""
        if not self.on or self._told or not steps or is_worker():
            return
        self._told = True
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        self._report.tell(
            "record",
            steps=steps,
            roots=self._roots,
            losses=self._losses,
            state=self._state(),
            files={_named(path): os.path.getsize(path) for path in self._files if os.path.isfile(path)},
            # the digests made here come after the last step, and are not part of any step
            seconds=round(self.seconds, 6),
        )

    def hold(self) -> None:
        """Wait until gpudoc ends this process: otherwise the faster side would print and write more."""
        if self.on and self._told:
            time.sleep(_HELD_S)

    def _root(self, tensors: Any) -> None:
        if self._report.off:
            return
        began = time.perf_counter()
        with self._report.guard("a record"):
            found = [tensors] if not isinstance(tensors, (list, tuple)) else list(tensors)
            small = [one for one in batches.tensors(found) if one.numel() <= _MOST_NUMBERS]
            self._roots.append(batches.digest(small)[:8])
            self._losses.append(_number(small))
        self.seconds += time.perf_counter() - began

    def _nudge(self, torch: Any, module: Any, nudge: str) -> None:
        """Move each weight by its last bit, once, before a model first computes with it."""
        if self._report.off or id(module) in self._nudged:
            return
        with self._report.guard("a control run"):
            self._nudged.update(id(one) for one in module.modules())
            self._move(torch, module.parameters(), nudge)

    def _nudge_without_modules(self, torch: Any, nudge: str) -> None:
        """Move weights that are plain tensors, and so in no module, when an optimizer gets them."""
        kind = torch.optim.Optimizer
        add = kind.add_param_group

        def added(optimizer: Any, group: Any) -> Any:
            given = add(optimizer, group)
            with self._report.guard("a control run"):
                weights = optimizer.param_groups[-1]["params"]
                self._move(torch, [one for one in weights if not isinstance(one, torch.nn.Parameter)], nudge)
            return given

        kind.add_param_group = added
        self._report.undo.append(lambda: setattr(kind, "add_param_group", add))

    def _move(self, torch: Any, weights: Iterable[Any], nudge: str) -> None:
        for held in weights:
            if id(held) in self._nudged or not held.is_floating_point():
                continue
            self._nudged.add(id(held))
            # `data` does not raise the tensor's version, which a graph may check
            values = held.data
            single = values.float() if self._report.order.get("single") else values
            values.copy_(torch.nextafter(single, _towards(torch, single, nudge)))

    def _state(self) -> dict[str, str]:
        torch = sys.modules["torch"]
        optimizers = list(self._optimizers.values())
        parameters = [group["params"] for one in optimizers for group in one.param_groups]
        found = {
            "parameters": batches.digest([*parameters, *(list(one.parameters()) for one in self._modules)]),
            "buffers": batches.digest([_saved_buffers(one) for one in self._modules]),
            "optimizer": _digest_of([_held(one.state_dict()) for one in optimizers]),
            "torch's generator": batches.digest([torch.get_rng_state()]),
            "random's generator": _digest_of(random.getstate()),
        }
        if torch.cuda.is_initialized():
            found["CUDA's generators"] = batches.digest(torch.cuda.get_rng_state_all())
        numpy = sys.modules.get("numpy")
        if numpy is not None and hasattr(numpy, "random"):
            kind, key, *rest = numpy.random.get_state()
            found["NumPy's generator"] = _digest_of((kind, key.tobytes(), rest))
        return found

    def _heard(self, event: str, arguments: Any) -> None:
        if event != "open" or self._report.off or self._told:
            return
        path, mode, flags = arguments
        if (isinstance(mode, str) and set(mode) & set("wax+")) or (mode is None and flags & _WRITES):
            self._wrote(path)

    def _wrote(self, path: Any) -> None:
        if len(self._files) >= _MOST_FILES or not isinstance(path, (str, bytes, os.PathLike)):
            return
        name = os.path.abspath(os.fsdecode(path))
        if not name.startswith((self._report.folder, "/dev/", "/proc/")) and "__pycache__" not in name:
            self._files[name] = None


def _number(found: list[Any]) -> float | None:
    """The loss that backward was called on; None if it is not one number, or not one that JSON can hold."""
    if len(found) != 1 or found[0].numel() != 1 or found[0].is_complex():
        return None
    number = float(found[0].detach())
    return number if math.isfinite(number) else None


def _named(path: str) -> str:
    """A path without the random part that tempfile drew."""
    folder = tempfile.gettempdir() + os.sep
    if not path.startswith(folder):
        return path
    first, rest = path[len(folder) :].partition(os.sep)[::2]
    return folder + _DRAWN.sub("*", first) + (os.sep + rest if rest else "")


def _modules_of(optimizer: Any) -> list[Any]:
    """The outermost modules that hold a parameter of the optimizer."""
    import gc

    kind = sys.modules["torch"].nn.Module
    own = {id(one) for group in optimizer.param_groups for one in group["params"]}
    # isinstance asks an object for its class, and torch.distributed.reduce_op would print a warning for that
    modules = [one for one in gc.get_objects() if issubclass(type(one), kind)]
    found = [one for one in modules if any(id(p) in own for p in one.parameters())]
    inner = {id(below) for one in found for below in one.modules() if below is not one}
    return sorted((one for one in found if id(one) not in inner), key=lambda one: type(one).__name__)


def _held(value: Any) -> Any:
    """A state with tensors as their digests, in an order that does not depend on how it was built."""
    if isinstance(value, sys.modules["torch"].Tensor):
        return batches.digest([value])
    if isinstance(value, dict):
        return sorted((str(key), _held(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return [_held(item) for item in value]
    return repr(value) if isinstance(value, (int, float, str, bool, type(None))) else type(value).__name__


def _digest_of(value: Any) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()


def _saved_buffers(module: Any) -> list[Any]:
    """The buffers that a checkpoint would hold; other buffers are constants, such as a table that was made once."""
    return [
        buffer
        for part in module.modules()
        for name, buffer in part.named_buffers(recurse=False)
        if name not in getattr(part, "_non_persistent_buffers_set", ())
    ]


def _towards(torch: Any, values: Any, nudge: str) -> Any:
    """The value towards which each number moves by its last bit: up, down, out (away from zero) or in (towards it)."""
    if nudge == "in":
        return torch.zeros_like(values)
    end = torch.full_like(values, float("-inf" if nudge == "down" else "inf"))
    return end.copysign(values) if nudge == "out" else end
