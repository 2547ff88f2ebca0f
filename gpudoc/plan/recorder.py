"""A lean tracker: it sees every operation of a step and records when each storage is allocated and freed."""

from __future__ import annotations

import sys
import traceback
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from gpudoc.plan.scratch import Rules
from gpudoc.plan.tape import GATHER, REDUCE, Assumption, Formula, StepPhase, Storage, StorageKind, Tape, Work

if TYPE_CHECKING:
    from torch._ops import OpOverload

Weigh = Callable[["OpOverload", Sequence[Any], dict[str, Any], object], Work | None]

# frames between the user's line and the operation: torch, this trace, and the counter of a step's FLOPs
_BETWEEN = ("/torch/", "/gpudoc/plan/", "/gpudoc/workload/flops.py", "<frozen", "<string>")
_OWN = str(Path(__file__).parents[1] / "train")
_DEVICE = torch.ops.prim.device.default
_ADD = torch.ops.aten.add.Tensor

# operations that ask the device for a value; a fake tensor has none
_READS_A_VALUE = {"aten::_local_scalar_dense", "aten::item"}

_ROWS_OF_NUMBERS = {torch.ops.aten.linspace.default, torch.ops.aten.arange.default, torch.ops.aten.arange.start}
_ROWS_OF_NUMBERS |= {torch.ops.aten.arange.start_step, torch.ops.aten.logspace.default}
_FEW = 4096

# by operation, the arguments that are made for an exchange
_EXCHANGES = {GATHER: slice(0, 2), REDUCE: slice(0, 1)}

# these change their first argument element by element: they allocate nothing, and a fake tensor computes nothing.
# Skipping them in the optimizer and in initialisation saves a third of the time of a trace.
_CHANGES_IN_PLACE = {
    f"aten::{name}_"
    for name in (
        *(
            "add",
            "sub",
            "mul",
            "div",
            "lerp",
            "addcmul",
            "addcdiv",
            "sqrt",
            "copy",
            "zero",
            "fill",
            "clamp",
            "clamp_min",
        ),
        *("normal", "uniform", "bernoulli", "exponential", "log_normal", "trunc_normal", "erfinv", "random"),
    )
}


class TapeRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fills a Tape while it is active; works on fake and on real tensors, and does not keep any tensor alive."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # nothing is compiled under a trace, and torch's guard around every call would cost a tenth of it
        return False

    def __init__(self, tape: Tape, rules: Rules, weigh: Weigh | None = None, *, fake: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape = tape
        self.phase = StepPhase.BUILD
        self.modules: list[str] = []
        self.weighing = False
        self.fake = fake
        self._rules = rules
        self._weigh = weigh
        # by storage: a reference that ends with it, its block, and the blocks that are freed with it
        self._living: dict[int, tuple[weakref.ref[Any], int, list[int]]] = {}
        self._episode: list[int] = []
        # by storage, the values of a short row of numbers that does not depend on other tensors
        self._values: dict[int, list[float]] = {}

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        if func is _DEVICE:
            # half of all calls under fake tensors, and they allocate nothing; asking the operator costs 20 µs
            known: object = getattr(args[0], "fake_device", None)
            return func(*args) if known is None else known
        kwargs = kwargs or {}
        phase = self._phase_now()
        out = result = self._call(func, phase, args, kwargs)
        if self.fake and isinstance(out, torch.Tensor):
            self._note_values(func, args, kwargs, out)
        if any(kind.__name__ == "DTensor" for kind in types):
            # the part on this rank of a tensor that is spread over ranks
            args, kwargs, out = tree_map(local, args), tree_map(local, kwargs), tree_map(local, result)
        born = len(self.tape.blocks)
        extra = self._rules.find(func, args, out)
        for position, tensor in enumerate(_tensors(out)):
            self._see(tensor, func, phase, extra.held.get(position, 0), extra.beside.get(position, ()))
        self._note_sum(func, args, out, phase)
        self._note_product(func)
        self._note_exchange(func, args)
        taken = [self._born(scratch.size_bytes, func, phase, scratch.formula) for scratch in extra.scratch]
        self.tape.events.extend(~index for index in taken)
        if self.weighing and self._weigh is not None and not _is_view(func):
            work = self._weigh(func, args, kwargs, out)
            if work is not None:
                self.tape.work.append(replace(work, is_update=phase is StepPhase.OPTIMIZER))
        if phase is StepPhase.FORWARD:
            self._episode.extend(range(born, len(self.tape.blocks)))
        return result

    def _call(self, func: OpOverload, phase: StepPhase, args: Sequence[Any], kwargs: dict[str, Any]) -> object:
        if self.fake:
            name = _name(func)
            if name in _READS_A_VALUE:
                return self._read_value(func, args)
            skips = phase in (StepPhase.OPTIMIZER, StepPhase.BUILD) and name.partition(".")[0] in _CHANGES_IN_PLACE
            # a fake tensor of one element carries its value: an optimizer's step count is read back
            if skips and args[0].numel() > 1:
                return args[0]
        return func(*args, **kwargs)

    def name(self, tensors: Iterable[torch.Tensor], kind: StorageKind, module: str = "") -> None:
        """Set the kind of living storages; their module stays if none is given."""
        for tensor in tensors:
            known = self._living.get(local(tensor).untyped_storage()._cdata)
            if known is not None:
                block = self.tape.blocks[known[1]]
                block.kind = kind
                block.module = module or block.module
                block.is_spread = local(tensor) is not tensor

    def mark(self, name: str) -> None:
        """Name the present position in the events."""
        self.tape.marks[name] = len(self.tape.events)

    def end_forward(self) -> None:
        """Mark results of the forward pass that are still alive as activations, which the backward pass needs."""
        if self._episode:
            living = {known[1] for known in self._living.values()}
            for index in self._episode:
                block = self.tape.blocks[index]
                if index in living and block.kind is StorageKind.TEMPORARY:
                    block.kind = StorageKind.ACTIVATIONS
            self._episode.clear()

    def _phase_now(self) -> StepPhase:
        if self.phase is not StepPhase.FORWARD:
            return self.phase
        # a module that runs inside the backward pass is a recomputation: its results are activations again
        backward = torch._C._current_graph_task_id() != -1 and not self.modules
        if backward:
            self.end_forward()
        return StepPhase.BACKWARD if backward else StepPhase.FORWARD

    def _see(
        self, tensor: torch.Tensor, func: OpOverload, phase: StepPhase, held_bytes: int, beside: Sequence[int]
    ) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        size = storage.nbytes() or held_bytes
        known = self._living.get(key)
        if known is not None:
            if self.tape.blocks[known[1]].size_bytes == size:
                return
            self._free(key)  # resized in place: the old memory goes, new memory comes
        index = self._born(size, func, phase)
        further = [self._born(each, func, phase) for each in beside]
        self._living[key] = (weakref.ref(storage, lambda _: self._free(key)), index, further)

    def resized(self, storage: torch.UntypedStorage) -> None:
        """A storage was emptied, or filled again, without an operation that says so."""
        key, size = storage._cdata, storage.nbytes()
        known = self._living.get(key)
        if known is None or self.tape.blocks[known[1]].size_bytes == size:
            return
        before = self.tape.blocks[known[1]]
        self.tape.events.append(~known[1])
        self.tape.blocks.append(replace(before, size_bytes=size, phase=self._phase_now()))
        self.tape.events.append(len(self.tape.blocks) - 1)
        self._living[key] = (known[0], len(self.tape.blocks) - 1, known[2])

    def _born(self, size: int, func: OpOverload, phase: StepPhase, formula: Formula | None = None) -> int:
        index = len(self.tape.blocks)
        module = self.modules[-1] if self.modules else ""
        self.tape.blocks.append(Storage(size, _name(func).removeprefix("aten::"), module, phase, formula=formula))
        self.tape.events.append(index)
        return index

    def _free(self, key: int) -> None:
        known = self._living.pop(key, None)
        self._values.pop(key, None)
        if known is not None:
            self.tape.events.extend(~index for index in (known[1], *known[2]))

    def _note_sum(self, func: OpOverload, args: Sequence[Any], out: object, phase: StepPhase) -> None:
        # a view keeps the tensor that it shows: autograd does not take its memory for the sum
        if (
            func is not _ADD
            or phase is not StepPhase.BACKWARD
            or not isinstance(out, torch.Tensor)
            or args[0]._is_view()
        ):
            return
        total = self._living.get(out.untyped_storage()._cdata)
        first = self._living.get(args[0].untyped_storage()._cdata)
        if total is not None and first is not None and total[1] == len(self.tape.blocks) - 1:
            self.tape.blocks[total[1]].adds_to = first[1]

    def _note_product(self, func: OpOverload) -> None:
        for workspace in self._rules.products.get(func._overloadpacket.__name__, ()):
            thread = "forward" if torch._C._current_graph_task_id() == -1 else "backward"
            self.tape.marks.setdefault(f"{workspace}, {thread}", len(self.tape.events))

    def _note_exchange(self, func: OpOverload, args: Sequence[Any]) -> None:
        """Mark buffers that ranks exchange: they lie in separate streams, whose memory the computation cannot use."""
        place = _EXCHANGES.get(func._schema.name)
        for tensor in () if place is None else tree_leaves(args[place]):
            known = self._living.get(tensor.untyped_storage()._cdata)
            if known is not None and self.tape.blocks[known[1]].kind is StorageKind.TEMPORARY:
                self.tape.blocks[known[1]].op = func._schema.name

    def begin_with(self, tensors: Iterable[torch.Tensor]) -> None:
        """Restart the events with all living storages, `tensors` first: a model built on the host is moved."""
        first = [self._living.get(local(tensor).untyped_storage()._cdata) for tensor in tensors]
        order = [known[1] for known in first if known is not None]
        order += [known[1] for known in self._living.values()]
        self.tape.events[:] = dict.fromkeys(order)
        self.tape.marks.clear()

    def _note_values(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], out: torch.Tensor) -> None:
        """Keep rows of numbers that models read back while they are built, such as rates that rise block by block."""
        if func in _ROWS_OF_NUMBERS and out.numel() <= _FEW:
            with _disable_current_modes():
                self._values[out.untyped_storage()._cdata] = func(*args, **kwargs).tolist()
        elif func._schema.is_mutable and args and isinstance(args[0], torch.Tensor):
            self._values.pop(args[0].untyped_storage()._cdata, None)

    def _read_value(self, func: OpOverload, args: Sequence[Any]) -> object:
        from torch._subclasses.fake_tensor import DataDependentOutputException

        try:
            return func(*args)
        except DataDependentOutputException:
            values = self._values.get(args[0].untyped_storage()._cdata)
            if values is not None:
                return values[args[0].storage_offset()]
            value = _assumed_value(args[0].dtype)
            note = Assumption(f"the value of a tensor is read ({value!r} assumed)", user_place())
            # train's own step checks whether gradients are finite, and here they always are
            if note not in self.tape.notes and not note.place.startswith(_OWN):
                self.tape.notes.append(note)
            return value


def user_place(error: BaseException | None = None) -> str:
    """The innermost line outside torch and gpudoc, as 'file:line in function'; '' if there is none."""
    frames = traceback.extract_stack(sys._getframe(1)) if error is None else traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        name = frame.filename.replace("\\", "/")
        if not any(part in name for part in _BETWEEN):
            return f"{frame.filename}:{frame.lineno} in {frame.name}"
    return ""


def local(item: Any) -> Any:  # noqa: ANN401 (whatever an operation takes or returns)
    """The part on this rank of a tensor that is spread over ranks; any other item unchanged."""
    return getattr(item, "_local_tensor", item)


def _assumed_value(dtype: torch.dtype) -> bool | int | float:
    # a healthy step reads False and 0.0 (no overflow, no NaN); a count is 1, since it may be used as a divisor
    if dtype is torch.bool:
        return False
    return 0.0 if dtype.is_floating_point else 1


def _name(func: OpOverload) -> str:
    name: str = func.name()  # type: ignore[no-untyped-call]
    return name


def _is_view(func: OpOverload) -> bool:
    return bool(func.is_view) or _name(func) in ("aten::detach", "aten::_unsafe_view", "aten::lift_fresh")


def _tensors(out: object) -> Iterable[torch.Tensor]:
    if isinstance(out, torch.Tensor):
        return (out,)
    if isinstance(out, (tuple, list)):
        return [
            tensor
            for item in out
            for tensor in (item if isinstance(item, (tuple, list)) else (item,))
            if isinstance(tensor, torch.Tensor)
        ]
    return ()
