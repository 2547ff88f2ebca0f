"""Builds the objects of a training from a config on request: model, data, loss and optimizer."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from gpudoc.errors import GpudocError
from gpudoc.workload.batch import Batch, num_samples
from gpudoc.workload.config import Data, LoadedConfig, Target, load_config
from gpudoc.workload.document import nearest
from gpudoc.workload.targets import Allowed, call, resolve, takes
from gpudoc.workload.weights import WeightsMatch, load_weights

Collate = Callable[[list[object]], Batch]
Dataset = torch.utils.data.Dataset[object]


@runtime_checkable
class ReportsEvaluation(Protocol):
    """An eval set that can translate its mean loss, for example into bits per byte and a baseline."""

    def report(self, mean_loss: float) -> Mapping[str, float]:
        """Named figures for a mean loss over this set."""


class Workload:
    """The objects of one config, built lazily: the data set once, a new model on each call."""

    def __init__(self, loaded: LoadedConfig) -> None:
        self.name = loaded.name
        self.folder = loaded.folder
        self.builtin = loaded.builtin
        self.config = loaded.config
        self._allowed = Allowed(folder=loaded.folder, packages=tuple(loaded.config.imports))

    @cached_property
    def dataset(self) -> Dataset:
        """The training set; GpudocError if it is empty."""
        return self._build_dataset(self.config.data)

    @cached_property
    def eval_dataset(self) -> Dataset | None:
        """The eval set, or None if the config does not name one."""
        section = self.config.data.eval
        return None if section is None else self._build_dataset(section)

    @property
    def is_stream(self) -> bool:
        """Whether the training set can only be iterated, from its beginning."""
        return is_stream(self.dataset)

    @property
    def num_samples(self) -> int:
        """Samples in the training set; GpudocError for an iterable set without a length."""
        if not isinstance(self.dataset, Sized):
            raise GpudocError(
                f"{self.config.data.target}: an iterable data set without a length",
                hint="define __len__ and __getitem__; only gpudoc train --steps N works without them",
            )
        return len(self.dataset)

    @cached_property
    def collate(self) -> Collate | None:
        """The config's collate function; None means PyTorch's default."""
        name = self.config.data.collate
        return None if name is None else self._resolve(name)

    def build_model(self) -> nn.Module:
        """A new model on torch's default device, seeded with the config's seed; GpudocError without parameters."""
        torch.manual_seed(self.config.train.seed)
        model = self._call(self.config.model)
        if not isinstance(model, nn.Module):
            raise GpudocError(f"{self.config.model.target} returned {type(model).__name__}, not a torch.nn.Module")
        for parameter in matching(model, self.config.model.frozen, "model.frozen").values():
            parameter.requires_grad_(False)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise GpudocError(f"{self.config.model.target}: the model has no parameter to train")
        return model

    def load_weights(self, model: nn.Module) -> WeightsMatch | None:
        """Load the config's weights into a new model; returns None if the config does not name any."""
        weights = self.config.model.weights
        return None if weights is None else load_weights(model, weights, self.folder)

    def build_loss(self) -> nn.Module | Callable[..., torch.Tensor] | None:
        """The loss, a module or a function; None if the model returns its own."""
        section = self.config.loss
        if section is None:
            return None
        function = self._resolve(section.target)
        if isinstance(function, type):
            return call(section.target, function, self._arguments(section, function))  # type: ignore[return-value]
        return partial(function, **self._arguments(section, function))  # type: ignore[return-value]

    def build_optimizer(
        self, model: nn.Module, overrides: Mapping[str, object] | None = None, target: str | None = None
    ) -> torch.optim.Optimizer:
        """The optimizer over the model's trainable parameters; `overrides` beat the config's args (lr, fused ...).

        `target` replaces the config's; its package need not be among the config's imports.
        """
        section = self.config.optimizer
        name = target or section.target
        allowed = self._allowed
        if target is not None:
            allowed = replace(allowed, packages=(*allowed.packages, target.partition(".")[0]))
        function = resolve(name, allowed)
        first = "model" if takes(function, "model") else "params"
        if first == "model" and section.groups:
            raise GpudocError(f"optimizer.groups: {name} takes the model and makes its own groups")
        trained = model if first == "model" else self._groups(model)
        arguments = {first: trained, **section.args, **(overrides or {})}
        optimizer = call(name, function, arguments)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise GpudocError(f"{name} returned {type(optimizer).__name__}, not a torch optimizer")
        for number, group in enumerate(section.groups):
            # torch accepts any name in a group, and an optimizer ignores unknown names
            for unknown in group.args.keys() - optimizer.defaults.keys():
                known = nearest(unknown, list(optimizer.defaults))
                raise GpudocError(f"optimizer.groups.{number}: {name} has no argument {unknown!r}{known}")
        return optimizer

    def _groups(self, model: nn.Module) -> list[object]:
        """The trainable parameters, as one list, or as torch's parameter groups if the config has groups."""
        trainable = {name: each for name, each in model.named_parameters() if each.requires_grad}
        if not self.config.optimizer.groups:
            return list(trainable.values())
        found: list[object] = []
        for number, group in enumerate(self.config.optimizer.groups):
            names = matching(model, group.parameters, f"optimizer.groups.{number}")
            own = [trainable.pop(name) for name in names if name in trainable]
            if own:
                found.append({"params": own, **group.args})
        return [{"params": list(trainable.values())}, *found] if trainable else found

    def step(self) -> Step:
        """The step that computes a loss from a model and a batch of this workload."""
        items = self.config.data.items
        return Step(
            loss=self.build_loss(),
            name=self.config.model.target,
            count=None if items is None else self._resolve(items),  # type: ignore[arg-type]
        )

    def signature(self) -> str:
        """Twelve hex digits over everything that affects memory except the data: model, loss, optimizer and collate."""
        config = self.config
        parts = [config.model, config.loss, config.optimizer]
        dumped = [part.model_dump(mode="json", exclude={"weights"}) if part else None for part in parts]
        text = json.dumps([*dumped, config.data.collate])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def _build_dataset(self, section: Target) -> Dataset:
        dataset = self._call(section)
        if not hasattr(dataset, "__getitem__") and not hasattr(dataset, "__iter__"):
            raise GpudocError(f"{section.target} returned {type(dataset).__name__}, which is not a data set")
        try:
            empty = isinstance(dataset, Sized) and len(dataset) == 0
        except Exception as problem:
            raise GpudocError(
                f"{section.target}: len() of the data set fails: {type(problem).__name__}: {problem}",
                hint=f"its arguments were {section.args}",
            ) from problem
        if empty:
            raise GpudocError(f"{section.target}: the data set is empty", hint=f"its arguments were {section.args}")
        return dataset  # type: ignore[return-value]

    def _call(self, section: Target) -> object:
        function = self._resolve(section.target)
        return call(section.target, function, self._arguments(section, function))

    def _arguments(self, section: Target, function: Callable[..., object]) -> dict[str, object]:
        arguments: dict[str, object] = dict(section.args)
        wants_data = takes(function, "dataset") and "dataset" not in arguments
        if wants_data and not isinstance(section, Data):
            arguments["dataset"] = self.dataset
        return arguments

    def _resolve(self, target: str) -> Callable[..., object]:
        return resolve(target, self._allowed)


def matching(model: nn.Module, patterns: Sequence[str], key: str) -> dict[str, nn.Parameter]:
    """The parameters whose names match one of `patterns`, by name; GpudocError naming `key` if one matches none."""
    named = dict(model.named_parameters())
    found: dict[str, nn.Parameter] = {}
    for pattern in patterns:
        names = [name for name in named if fnmatchcase(name, pattern)]
        if not names:
            close = difflib.get_close_matches(pattern, list(named), n=1, cutoff=0.3)
            hint = f"the model has {close[0]!r}; * stands for any part of a name" if close else ""
            raise GpudocError(f"{key}: no parameter is named {pattern!r}", hint=hint)
        found |= {name: named[name] for name in names}
    return found


class Step:
    """The forward pass of a workload: batch in, scalar mean loss out."""

    def __init__(
        self,
        *,
        loss: nn.Module | Callable[..., torch.Tensor] | None,
        name: str,
        count: Callable[[Batch], int] | None = None,
    ) -> None:
        self._loss = loss
        self._name = name
        self._count = count

    def to(self, device: torch.device) -> Step:
        """Move a loss that has its own tensors."""
        if isinstance(self._loss, nn.Module):
            self._loss.to(device)
        return self

    def loss(self, model: Callable[..., object], batch: Batch) -> torch.Tensor:
        """The mean loss over the batch's items; GpudocError if it is not a scalar tensor."""
        if self._loss is None:
            return self._scalar(_loss_in(self._forward(model, batch)))
        if isinstance(batch, (list, tuple)) and len(batch) > 1:
            return self._scalar(self._of(model, model(*batch[:-1]), batch[-1]))
        if isinstance(batch, Mapping):
            return self._scalar(self._of(model, model(**batch), batch))
        raise GpudocError(
            f"{self._name}: a batch of type {type(batch).__name__} has no target for the loss",
            hint="return (input, target) from the data set, or leave out `loss` if the model returns its loss",
        )

    def _of(self, model: Callable[..., object], output: object, target: object) -> object:
        """The loss of an output; GpudocError with the model's file and line if a loss of torch rejects it."""
        assert self._loss is not None
        try:
            return self._loss(output, target)
        except (TypeError, AttributeError) as problem:
            if isinstance(output, torch.Tensor) or not type(self._loss).__module__.startswith("torch."):
                raise
            kind = type(self._loss).__name__
            raise GpudocError(
                f"{self._name}: the model returned {_kinds(output)}, and {kind} takes a tensor{_forward_of(model)}",
                hint="return only the output from forward, or use your own loss: target: yourmodule:loss",
            ) from problem

    def count_items(self, batch: Batch) -> int:
        """The number of items that the loss averages over: `data.items` if the config names it, else the samples."""
        return num_samples(batch) if self._count is None else int(self._count(batch))

    @staticmethod
    def _forward(model: Callable[..., object], batch: Batch) -> object:
        if isinstance(batch, Mapping):
            return model(**batch)
        if isinstance(batch, list | tuple):
            return model(*batch)
        return model(batch)

    def _scalar(self, value: object) -> torch.Tensor:
        if not isinstance(value, torch.Tensor):
            raise GpudocError(f"{self._name}: the loss is {type(value).__name__}, not a tensor", hint=_LOSS_HINT)
        if value.dim() == 0:
            return value
        if value.numel() != 1:
            raise GpudocError(
                f"{self._name}: the loss has the shape {list(value.shape)}, not a single number",
                hint="reduce it with .mean() in the model, or name a `loss` in the config",
            )
        return value.reshape(())


_LOSS_HINT = "return the loss, an object or dict with .loss, or name a `loss` in the config"


def _loss_in(output: object) -> object:
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, Mapping):
        return output.get("loss")
    found = getattr(output, "loss", None)
    if found is None and isinstance(output, tuple) and output:
        return output[0]
    return found


def is_stream(dataset: Dataset) -> bool:
    """Whether a data set can only be iterated; PyTorch's base class has a __getitem__ that only raises."""
    return isinstance(dataset, torch.utils.data.IterableDataset) or not hasattr(dataset, "__getitem__")


def load_workload(source: str) -> Workload:
    """The workload named 'quickstart', 'images' or by a cfg.yaml; imports no code of the user yet."""
    return Workload(load_config(source))


def model_fingerprint(model: nn.Module) -> str:
    """Twelve hex digits over names, shapes, types and classes; wrapping by DDP or compiling does not change them."""
    rows = [
        f"{name} {tuple(tensor.shape)} {tensor.dtype} {tensor.requires_grad}"
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    ]
    rows += [f"{name} {type(module).__qualname__}" for name, module in model.named_modules()]
    clean = sorted(row.replace("_orig_mod.", "").replace("module.", "") for row in rows)
    return hashlib.sha256("\n".join(clean).encode()).hexdigest()[:12]


def data_fingerprint(dataset: Dataset) -> str:
    """Twelve hex digits over the data set's class, its length and, if it has one, its own `fingerprint()`."""
    own = getattr(dataset, "fingerprint", None)
    length = len(dataset) if isinstance(dataset, Sized) else -1
    text = f"{type(dataset).__qualname__} {length} {own() if callable(own) else ''}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _kinds(output: object) -> str:
    """'a tuple (Tensor, Tensor)', 'a dict'."""
    kind = type(output).__name__
    inside = f" ({', '.join(type(part).__name__ for part in output)})" if isinstance(output, list | tuple) else ""
    return f"a {kind}{inside}"


def _forward_of(model: object) -> str:
    """The place of the model's forward in the code: ' (net.py:12)'; '' if unknown."""
    for name in ("module", "_orig_mod"):
        while isinstance(inner := getattr(model, name, None), nn.Module):
            model = inner
    code = getattr(getattr(type(model), "forward", None), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
