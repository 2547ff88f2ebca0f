"""The owners of tensors: the modules and optimizers of a training state, and the module that runs right now."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from gpudoc.plan.recorder import TapeRecorder
from gpudoc.plan.tape import StepPhase, StorageKind

# a state nests its modules in attributes, lists and dicts; deeper than this it is data, not structure
_DEPTH = 4


class Owners:
    """The modules, parameters and optimizers in the result of `build`."""

    def __init__(self, state: object) -> None:
        found = list(_walk(state, "", _DEPTH))
        self.modules = {name: item for name, item in found if isinstance(item, nn.Module)}
        self.optimizers = [item for _, item in found if isinstance(item, Optimizer)]
        self.names = {
            id(module): ".".join(part for part in (root, name) if part)
            for root, top in self.modules.items()
            for name, module in top.named_modules()
        }

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every parameter once, with its module's name; parameters that only an optimizer knows come last."""
        seen: set[int] = set()
        for root, top in self.modules.items():
            for name, parameter in top.named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield _join(root, name.rpartition(".")[0]), parameter
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if id(parameter) not in seen:
                        seen.add(id(parameter))
                        yield "", parameter

    def as_moved(self) -> Iterator[torch.Tensor]:
        """Parameters and buffers in the order in which `Module.to` moves them: inner modules first."""
        for top in self.modules.values():
            yield from _inner_first(top)

    def num_parameters(self) -> int:
        """Elements of all parameters, tied ones counted once."""
        return sum(parameter.numel() for _, parameter in self.parameters())

    def name_weights(self, recorder: TapeRecorder) -> None:
        """Mark parameters and buffers as weights."""
        for module, parameter in self.parameters():
            recorder.name([parameter], StorageKind.WEIGHTS, module)
        for root, top in self.modules.items():
            for name, buffer in top.named_buffers():
                recorder.name([buffer], StorageKind.WEIGHTS, _join(root, name.rpartition(".")[0]))

    def name_gradients(self, recorder: TapeRecorder) -> None:
        """Mark the .grad of each parameter as a gradient."""
        for module, parameter in self.parameters():
            if parameter.grad is not None:
                recorder.name([parameter.grad], StorageKind.GRADIENTS, module)

    def name_optimizer_state(self, recorder: TapeRecorder) -> None:
        """Mark tensors in an optimizer's state; a parameter kept there stays a weight."""
        of_parameter = {id(parameter): module for module, parameter in self.parameters()}
        for optimizer in self.optimizers:
            for parameter, values in optimizer.state.items():
                module = of_parameter.get(id(parameter), "")
                recorder.name(_tensors_of(values), StorageKind.OPTIMIZER, module)
        self.name_weights(recorder)

    @contextmanager
    def watch(self, recorder: TapeRecorder) -> Iterator[None]:
        """Tell `recorder` which module runs and when an optimizer steps."""

        def enter(module: nn.Module, _: object) -> None:
            recorder.modules.append(self.names.get(id(module), type(module).__name__))

        def leave(_: nn.Module, __: object, ___: object) -> None:
            if recorder.modules:
                recorder.modules.pop()

        def before(_: Optimizer, __: object, ___: object) -> None:
            recorder.end_forward()
            self.name_gradients(recorder)
            before.phase = recorder.phase  # type: ignore[attr-defined]
            recorder.phase = StepPhase.OPTIMIZER

        def after(_: Optimizer, __: object, ___: object) -> None:
            self.name_optimizer_state(recorder)
            recorder.phase = before.phase  # type: ignore[attr-defined]

        handles = [
            nn.modules.module.register_module_forward_pre_hook(enter),
            nn.modules.module.register_module_forward_hook(leave, always_call=True),
            register_optimizer_step_pre_hook(before),
            register_optimizer_step_post_hook(after),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _inner_first(module: nn.Module) -> Iterator[torch.Tensor]:
    for child in module.children():
        yield from _inner_first(child)
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)


def _join(root: str, name: str) -> str:
    return ".".join(part for part in (root, name) if part)


def _tensors_of(values: object) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, Mapping):
        return [tensor for value in values.values() for tensor in _tensors_of(value)]
    if isinstance(values, (list, tuple)):
        return [tensor for value in values for tensor in _tensors_of(value)]
    return []


def _walk(item: object, name: str, depth: int) -> Iterator[tuple[str, nn.Module | Optimizer]]:
    if isinstance(item, (nn.Module, Optimizer)):
        yield name, item
        return
    if depth == 0 or isinstance(item, (str, bytes, int, float, torch.Tensor, type(None))):
        return
    for key, value in _children(item):
        yield from _walk(value, key if not name else f"{name}.{key}", depth - 1)


def _children(item: Any) -> list[tuple[str, object]]:  # noqa: ANN401 (the user's own state, of any type)
    if isinstance(item, Mapping):
        return [(str(key), value) for key, value in item.items()]
    if isinstance(item, (list, tuple)):
        modules = [value for value in item if isinstance(value, nn.Module)]
        # (model, optimizer) is the usual state: with only one module, a number in front of every name is useless
        return [
            ("" if len(modules) == 1 and isinstance(value, nn.Module) else str(index), value)
            for index, value in enumerate(item)
        ]
    if dataclasses.is_dataclass(item):
        return [(field.name, getattr(item, field.name)) for field in dataclasses.fields(item)]
    return list(vars(item).items()) if hasattr(item, "__dict__") else []
