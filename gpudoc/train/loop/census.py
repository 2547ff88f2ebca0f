"""The use of memory at the peak of a step, found by watching one step: what autograd keeps, for which module.

The caching allocator reports how much is held at every moment, so the unexplained rest has a size, too.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.autograd.graph import Node, get_gradient_edge, saved_tensors_hooks
from torch.utils.hooks import RemovableHandle

from gpudoc.train.document import MemorySeen
from gpudoc.train.loop.course import Course
from gpudoc.train.meter.meters import memory_peak_bytes
from gpudoc.train.ranks.protocol import inside, own_part
from gpudoc.train.step.step import Stepper

# the first step in which every optimizer has its state
_STEP = 3
# CUDA's caching allocator allocates memory in pieces of this size
_PIECE_BYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakComposition:
    """The bytes at the peak of step `step`; the parts add up to `peak_bytes`.

    `activations` are the bytes that autograd kept, by the module that ran; empty if they could not be watched, and then
    `why` gives the reason and they are part of the rest. The rest: temporary results, workspaces and buffers on a GPU;
    everything else in the process on a CPU. `reserved_bytes` is the memory that the allocator had taken from the GPU at
    the peak; None on a CPU.
    """

    step: int
    peak_bytes: int
    weights: int
    gradients: int
    optimizer: int
    activations: Mapping[str, int]
    reserved_bytes: int | None
    why: str = ""

    def parts(self) -> dict[str, int]:
        """Bytes by purpose."""
        known = {"weights": self.weights, "gradients": self.gradients, "optimizer": self.optimizer}
        if not self.why:
            known["activations"] = sum(self.activations.values())
        return {**known, "rest": max(0, self.peak_bytes - sum(known.values()))}

    def document(self) -> MemorySeen:
        """The composition as plain data, modules by size."""
        modules = sorted(self.activations.items(), key=lambda row: -row[1])
        found: MemorySeen = {
            "step": self.step,
            "peak_bytes": self.peak_bytes,
            "bytes": self.parts(),
            "activations": [{"module": name, "bytes": size} for name, size in modules],
            "reserved_bytes": self.reserved_bytes,
        }
        if self.reserved_bytes is not None:
            found["fragmentation_bytes"] = max(0, self.reserved_bytes - self.peak_bytes)
        if self.why:
            found["because"] = self.why
        return found


@dataclass(slots=True)
class _Highest:
    """The peak so far, and the memory that was known to be in use then."""

    total: int = -1
    reserved: int | None = None
    gradients: int = 0
    activations: dict[str, int] = field(default_factory=dict)


class Census:
    """Watches the third step of a process; `advance` is called after each step, and nothing else has a cost."""

    def __init__(self, stepper: Stepper, course: Course) -> None:
        self._stepper = stepper
        self._course = course
        self._steps = 0
        self._watch: _Watch | None = None
        self._micro_batch = 0
        self.found: PeakComposition | None = None

    @property
    def wanted(self) -> bool:
        """Whether the step to be watched is still to come."""
        return self.found is None

    def advance(self) -> None:
        """A step ended: begin to watch, or store the result."""
        self._steps += 1
        if self._watch is not None:
            watch, self._watch = self._watch, None
            watch.close()
            if self._micro_batch == self._course.order.micro_batch:
                self.found = watch.composition(self._course.progress.step)
                return
            # memory ran out meanwhile: the result belongs to another micro batch
        if self._steps >= _STEP - 1:
            self._micro_batch = self._course.order.micro_batch
            self._watch = _Watch(self._stepper)

    def close(self) -> None:
        """Stop watching; a step that failed meanwhile is not a measurement."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def document(self) -> MemorySeen:
        """The result as plain data, or the reason why there is none."""
        if self.found is None:
            return {"because": f"fewer than {_STEP} steps were trained"}
        return self.found.document()


class _Watch:
    """The hooks of one step. Reads the allocator whenever an object that it counts is created or freed."""

    def __init__(self, stepper: Stepper) -> None:
        parts = stepper.parts
        self._stepper = stepper
        self._device = parts.device
        self._on_gpu = parts.device.type == "cuda"
        self._names = {id(module): name or type(module).__name__ for name, module in parts.model.named_modules()}
        self._running: list[str] = []
        self._weights = _sizes([*parts.model.parameters(), *parts.model.buffers()], parts.device)
        self._gradients: dict[int, int] = {}
        # by storage: a reference that reports its end, its size, and the module that ran
        self._kept: dict[int, tuple[weakref.ref[torch.UntypedStorage], int, str]] = {}
        self._activations: dict[str, int] = {}
        self._highest = _Highest()
        self._has_begun = False
        self._handles: list[RemovableHandle] = []
        self._nodes: list[Node] = []
        self._saved: saved_tensors_hooks | None = None
        self.why = _why_not(stepper)
        self._begin()

    def close(self) -> None:
        self._look()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._nodes.clear()
        if self._saved is not None:
            self._saved.__exit__(None, None, None)
            self._saved = None

    def composition(self, step: int) -> PeakComposition:
        """The memory that the watched step, number `step`, held at its peak."""
        highest, held = self._highest, owned(self._stepper)
        views = any(_is_view(p.grad) for p in self._stepper.parameters if p.grad is not None)
        # gradients that are views of exchange buckets hold memory all the time; without a watch nothing else is known
        gradients = held["gradients"] if views or self.why else highest.gradients
        known = held["weights"] + held["optimizer"] + gradients + sum(highest.activations.values())
        return PeakComposition(
            step=step,
            peak_bytes=highest.total if self._on_gpu else max(memory_peak_bytes(self._device), known),
            weights=held["weights"],
            gradients=gradients,
            optimizer=held["optimizer"],
            activations=highest.activations,
            reserved_bytes=highest.reserved,
            why=self.why,
        )

    def _begin(self) -> None:
        self._forget()
        if self.why:
            return
        self._handles = [
            nn.modules.module.register_module_forward_pre_hook(self._enter),
            nn.modules.module.register_module_forward_hook(self._leave, always_call=True),
            *map(self._hear, self._stepper.parameters),
        ]
        self._saved = saved_tensors_hooks(self._pack, _same)
        self._saved.__enter__()

    def _forget(self) -> None:
        """Start to count from here; the peak of the run is kept."""
        self._highest = _Highest()
        if self._on_gpu:
            meter = self._stepper.meter
            meter.peak_bytes = max(meter.peak_bytes, memory_peak_bytes(self._device))
            torch.cuda.reset_peak_memory_stats(self._device)

    def _enter(self, module: nn.Module, _: object) -> None:
        if not self._running and torch.is_grad_enabled():
            if not self._has_begun:
                # memory used since the previous step, for example by an evaluation, does not belong to this step
                self._forget()
            self._has_begun = True
            of_before = (p.grad for p in self._stepper.parameters if p.grad is not None)
            self._gradients = _sizes(of_before, self._device)
        self._running.append(self._names.get(id(module), type(module).__name__))

    def _leave(self, _: nn.Module, __: object, ___: object) -> None:
        if self._running:
            self._running.pop()

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != self._device.type:
            return tensor
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._weights and key not in self._kept:
            self._look()
            size, module = _size(storage, self._device), self._running[-1] if self._running else "the loss"
            self._kept[key] = (weakref.ref(storage, self._ender(key)), size, module)
            self._activations[module] = self._activations.get(module, 0) + size
        return tensor

    def _ender(self, key: int) -> Callable[[object], None]:
        # also called while the interpreter shuts down, so it holds all that it needs
        def ended(_: object) -> None:
            known = self._kept.pop(key, None)
            if known is not None:
                self._look()
                self._activations[known[2]] -= known[1]

        return ended

    def _hear(self, parameter: torch.Tensor) -> RemovableHandle:
        # a hook on the parameter would be called in every later backward, even after its removal; a hook on the node
        # that adds to its gradient disappears with the node, which autograd creates again for each graph
        node = get_gradient_edge(parameter).node
        self._nodes.append(node)
        return node.register_hook(lambda *_: self._grown(parameter))

    def _grown(self, parameter: torch.Tensor) -> None:
        self._look()
        if parameter.grad is not None:
            self._gradients.update(_sizes([parameter.grad], self._device))

    def _look(self) -> None:
        """Record the peak since the last look; no counted object was created or freed since then."""
        gradients = sum(self._gradients.values())
        total, reserved = gradients + sum(self._activations.values()), None
        if self._on_gpu:
            held = torch.cuda.memory_stats_as_nested_dict(self._device)
            total, reserved = held["allocated_bytes"]["all"]["peak"], held["reserved_bytes"]["all"]["current"]
            torch.cuda.reset_peak_memory_stats(self._device)
        if total > self._highest.total:
            living = {name: size for name, size in self._activations.items() if size}
            self._highest = _Highest(total, reserved, gradients, living)


def owned(stepper: Stepper) -> dict[str, int]:
    """Bytes of weights, gradients and optimizer state as they are now, each storage counted once."""
    device, model = stepper.parts.device, stepper.parts.model
    weights = _sizes([*model.parameters(), *model.buffers()], device)
    gradients = _sizes((p.grad for p in stepper.parameters if p.grad is not None), device)
    states = _sizes(_tensors(list(stepper.parts.optimizer.state.values())), device)
    optimizer = {key: size for key, size in states.items() if key not in weights}
    return {
        "weights": sum(weights.values()),
        "gradients": sum(gradients.values()),
        "optimizer": sum(optimizer.values()),
    }


def _sizes(tensors: Iterable[torch.Tensor], device: torch.device) -> dict[int, int]:
    """Bytes by storage of the tensors on the device."""
    storages = [own_part(tensor).untyped_storage() for tensor in tensors if tensor.device.type == device.type]
    return {storage._cdata: _size(storage, device) for storage in storages}


def _size(storage: torch.UntypedStorage, device: torch.device) -> int:
    size = storage.nbytes()
    return -(-size // _PIECE_BYTES) * _PIECE_BYTES if device.type == "cuda" else size


def _why_not(stepper: Stepper) -> str:
    """The reason why autograd's tensors cannot be watched; empty if they can."""
    if hasattr(stepper.parts.forward, "_orig_mod"):
        return "what compiled code keeps cannot be observed"
    return "what ranks gather temporarily looks the same as what they keep" if stepper.parts.ranks.is_sharded else ""


def _is_view(tensor: torch.Tensor) -> bool:
    own = own_part(tensor)
    return own.untyped_storage().nbytes() > own.numel() * own.element_size()


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _tensors(values: object) -> Iterator[torch.Tensor]:
    """The tensors in an optimizer's state, which nests dicts and lists."""
    if isinstance(values, torch.Tensor):
        yield from inside(values).values() or [values]
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from _tensors(value)
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _tensors(value)
