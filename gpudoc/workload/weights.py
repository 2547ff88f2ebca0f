"""Starts from existing weights: copies a file's tensors into a new model, and names those that do not match."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from gpudoc.control_characters import escape_line
from gpudoc.errors import GpudocError
from gpudoc.knowledge.drivers import parse_version
from gpudoc.process.shortage import is_out_of_memory
from gpudoc.units import format_bytes
from gpudoc.workload.config import Weights

INDEX = ".index.json"
# the files to look for in a folder of weights, best first
_IN_A_FOLDER = ("model.safetensors", f"model.safetensors{INDEX}", "pytorch_model.bin", f"pytorch_model.bin{INDEX}")
# the keys under which training scripts store weights in a file with more content
_INSIDE = ("state_dict", "model_state_dict", "model", "module")
_SHOWN = 6

Read = Callable[[], torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsMatch:
    """The comparison of a file and a model: loaded names, and names that only one of the two has.

    `misshapen` holds sentences about names on both sides with different shapes, which are not loaded.
    """

    file: str
    loaded: tuple[str, ...]
    num_bytes: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    misshapen: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every tensor found its place, on both sides."""
        return not (self.missing or self.unexpected or self.misshapen)

    def sentences(self) -> list[str]:
        """A sentence about the loaded tensors, then one for each kind of mismatch."""
        said = [f"weights: {len(self.loaded)} tensors ({format_bytes(self.num_bytes)}) from {self.file}"]
        if self.missing:
            said.append(f"the file lacks {_some(self.missing)}: left as the model initialises them")
        if self.unexpected:
            said.append(f"the model lacks {_some(self.unexpected)}: left out")
        if self.misshapen:
            said.append(f"other shapes, not loaded: {_some(self.misshapen)}")
        return said


def load_weights(model: nn.Module, weights: Weights, folder: Path) -> WeightsMatch:
    """Copy the tensors of `weights.file`, a path relative to `folder`, into `model`, in the model's own types.

    GpudocError for a file that cannot be read, for one without a tensor that fits, and, if `weights.strict`, for any
    tensor without a counterpart. The model is unchanged then.
    """
    path = _find(folder / Path(weights.file).expanduser())
    with _opened(path) as (shapes, read):
        names = _renamed(shapes, weights)
        own = model.state_dict()
        fitting = {name: key for name, key in names.items() if name in own and own[name].shape == shapes[key]}
        tied = {own[name].data_ptr() for name in fitting}
        match = WeightsMatch(
            file=path.name,
            loaded=tuple(fitting),
            num_bytes=sum(own[name].nbytes for name in fitting),
            missing=tuple(name for name in own if name not in names and own[name].data_ptr() not in tied),
            unexpected=tuple(name for name in names if name not in own),
            misshapen=tuple(
                f"{name} {_shape(shapes[names[name]])} for {_shape(tensor.shape)}"
                for name, tensor in own.items()
                if name in names and name not in fitting
            ),
        )
        if not match.loaded or (weights.strict and not match.is_whole):
            raise GpudocError(_complaint(match), hint=_way_out(match, weights))
        with torch.no_grad():
            for name, key in fitting.items():
                own[name].copy_(read[key]())
    return match


def _renamed(shapes: Mapping[str, torch.Size], weights: Weights) -> dict[str, str]:
    """The name in the file by the name in the model, for all names that begin with `prefix`."""
    return {weights.into + key.removeprefix(weights.prefix): key for key in shapes if key.startswith(weights.prefix)}


def _find(path: Path) -> Path:
    if path.is_dir():
        for name in _IN_A_FOLDER:
            if (path / name).is_file():
                return path / name
        raise GpudocError(f"model.weights: {path} contains no weights", hint=f"looked for {', '.join(_IN_A_FOLDER)}")
    if not path.is_file():
        raise GpudocError(f"model.weights: {path} does not exist", hint="the path is relative to the config's folder")
    return path


_Tensors = tuple[dict[str, torch.Size], dict[str, Read]]


@contextmanager
def _opened(path: Path) -> Iterator[_Tensors]:
    """Shapes by name, and how to read each tensor; tensors of safetensors are read one at a time."""
    shapes: dict[str, torch.Size] = {}
    read: dict[str, Read] = {}
    try:
        for file in _parts(path):
            more = _of_safetensors(file) if file.suffix == ".safetensors" else _of_torch(file)
            shapes |= more[0]
            read |= more[1]
        yield shapes, read
    except (SafetensorError, OSError) as problem:
        raise GpudocError(f"model.weights: {path} cannot be read: {problem}") from problem


def _parts(path: Path) -> list[Path]:
    """The files that an index names, if `path` is an index; else only the file itself."""
    if not path.name.endswith(INDEX):
        return [path]
    try:
        names = json.loads(path.read_text("utf-8"))["weight_map"].values()
        # only files in the index's own folder are read
        found = [path.parent / Path(str(name)).name for name in dict.fromkeys(names)]
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as problem:
        raise GpudocError(f"model.weights: {path} is not an index of weights: {problem!r}") from problem
    for file in found:
        if not file.is_file():
            raise GpudocError(f"model.weights: {path.name} names {file.name}, which is not in the same folder")
    return found


def _of_safetensors(file: Path) -> _Tensors:
    # safetensors' own types are not declared
    opened: Any = safe_open(file, framework="pt")
    names = list(opened.keys())
    shapes = {name: torch.Size(opened.get_slice(name).get_shape()) for name in names}
    return shapes, {name: partial(opened.get_tensor, name) for name in names}


_FIRST_SAFE = (2, 6)


def load_plain(file: Path) -> object:
    """The content of a file of torch.save, if it has only tensors and plain values; GpudocError with an older torch.

    Before 2.6, `weights_only` could be made to run code (CVE-2025-32434).
    """
    if parse_version(torch.__version__) < _FIRST_SAFE:
        raise GpudocError(
            f"{escape_line(file)}: torch {torch.__version__} may run code while it reads such a file",
            hint="pip install 'torch>=2.6', or give weights as safetensors",
        )
    content: object = torch.load(file, map_location="cpu", weights_only=True)
    return content


def _of_torch(file: Path) -> _Tensors:
    """The tensors of a file of torch.save; unpickling allows only tensors and plain values."""
    try:
        content = load_plain(file)
    except GpudocError:
        raise
    except pickle.UnpicklingError as problem:
        first = str(problem).splitlines()[0]
        raise GpudocError(
            f"model.weights: {file} contains more than tensors, and reading it could run code: {first}",
            hint="where it was created, run safetensors.torch.save_file(model.state_dict(), 'model.safetensors')",
        ) from problem
    except Exception as problem:
        # torch's reader raises many kinds of errors on bytes that are not a pickle
        if is_out_of_memory(problem):
            raise
        raise GpudocError(f"model.weights: {file} is not a file of torch.save: {problem!r}") from problem
    for name in _INSIDE:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    tensors = (
        {key: value for key, value in content.items() if isinstance(value, torch.Tensor)}
        if (isinstance(content, Mapping))
        else {}
    )
    if not tensors:
        raise GpudocError(f"model.weights: {file} contains no named tensors")

    def reader(tensor: torch.Tensor) -> Read:
        return lambda: tensor

    return {key: value.shape for key, value in tensors.items()}, {key: reader(value) for key, value in tensors.items()}


def _complaint(match: WeightsMatch) -> str:
    parts = [f"model.weights: {match.file} does not fit the model: {len(match.loaded)} tensors match"]
    if match.missing:
        parts.append(f"the file lacks {_some(match.missing)}")
    if match.unexpected:
        parts.append(f"the model lacks {_some(match.unexpected)}")
    if match.misshapen:
        parts.append(f"other shapes: {_some(match.misshapen)}")
    return "; ".join(parts)


def _way_out(match: WeightsMatch, weights: Weights) -> str:
    """A prefix with which more tensors would match, if there is one; else how to load those that match."""
    for name in match.unexpected:
        for other in match.missing:
            if name.endswith("." + other) and not weights.prefix:
                return f"write weights: {{file: {weights.file}, prefix: '{name.removesuffix(other)}'}}"
            if other.endswith("." + name) and not weights.into:
                return f"write weights: {{file: {weights.file}, into: '{other.removesuffix(name)}'}}"
    return "strict: false under weights loads what matches and lists the rest" if match.loaded else ""


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def _shape(shape: torch.Size) -> str:
    return "x".join(str(size) for size in shape) or "()"
