"""Checkpoints of sharded ranks: each writes its own part through torch.distributed.checkpoint, during training.

`dcp/` holds weights under `model.<name>` and optimizer state under `optimizer.<number>.<key>`; any number of ranks, or
one process, can read it. State that is not sharded is in optimizer.pt as usual, with None for each sharded tensor.
"""

from __future__ import annotations

import enum
import inspect
import os
import pickle
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeVar, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, empty

from gpudoc.errors import GpudocError
from gpudoc.process.memory import room_for_pickle
from gpudoc.train.ranks.protocol import own_part
from gpudoc.train.state import checkpoint
from gpudoc.train.state.checkpoint import Content, Fault, plain_name
from gpudoc.train.state.staging import Staging
from gpudoc.writing import sync_folder

T = TypeVar("T")
State = dict[str, object]


class Council:
    """The ranks of a sharded run that write: a separate group, since writer threads communicate during training.
    All ranks call every method at the same place."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.world = dist.get_world_size(group)
        self._mesh = DeviceMesh.from_group(group, "cpu")

    def all(self, act: Callable[[], T]) -> list[T]:
        """The results of every rank's `act`; OSError on all ranks if one failed, with its number."""
        value: T | None = None
        problem = ""
        try:
            value = act()
        except (Exception, CheckpointException) as caught:
            problem = reason_of(caught)
        told: list[tuple[T | None, str]] = [(None, "")] * self.world
        dist.all_gather_object(told, (value, problem), group=self.group)
        failed = [f"{text} (rank {rank})" for rank, (_, text) in enumerate(told) if text]
        if failed:
            raise OSError(failed[0])
        return [cast(T, found) for found, _ in told]

    def first(self, act: Callable[[], T]) -> T:
        """The result of `act` on rank 0; only rank 0 calls it."""
        return cast(T, self.all(lambda: act() if self.rank == 0 else None)[0])

    def on_host(self, like: DTensor, part: torch.Tensor) -> DTensor:
        """A sharded tensor on the host with this rank's `part`, divided in the same way as `like`."""
        return DTensor.from_local(
            part, self._mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )


def reason_of(problem: BaseException) -> str:
    """The innermost cause of a failed write or read in one line; DCP's own text is a traceback per rank."""
    if isinstance(problem, CheckpointException):
        first = next(iter(problem.failures.values()), None)
        return reason_of(first[0]) if first else str(problem)
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return f"{type(problem).__name__}: {problem}".splitlines()[0]


def capture(
    model: nn.Module, optimizer: torch.optim.Optimizer, council: Council, staging: Staging
) -> tuple[dict[str, torch.Tensor], State]:
    """(this rank's part of every sharded tensor on the host, the optimizer's state with None in their place)."""
    steady = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    spread: dict[str, torch.Tensor] = {}

    def stage(key: str, tensor: torch.Tensor, moves: bool) -> None:
        part = staging.take(key, own_part(tensor), moves=moves)
        spread[key] = council.on_host(tensor, part) if isinstance(tensor, DTensor) else part

    for name, tensor in model.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            stage(f"model.{plain_name(name)}", tensor, name not in steady)
    state = optimizer.state_dict()
    rows: dict[int, State] = {}
    for number, row in state["state"].items():
        rows[number] = {}
        for key, value in row.items():
            if isinstance(value, DTensor):
                stage(f"optimizer.{number}.{key}", value, False)
                rows[number][key] = None
            else:
                rows[number][key] = checkpoint.host_copy(value)
    groups = checkpoint.host_copy(state["param_groups"])
    return spread, {"state": rows, "param_groups": groups}


def write_together(
    folder: Path, content: Content, council: Council, *, keep: Sequence[int], fault: Fault | None = None
) -> Path:
    """Write folder/step-N with all ranks, whole or not at all; OSError on every rank if one could not write.

    Each rank writes and hashes its shards; rank 0 writes the rest and, when all digests are there, the manifest.
    """
    act = fault or checkpoint.no_fault
    aside = council.first(lambda: checkpoint.open_aside(folder, content.step))
    try:
        place = aside / checkpoint.SHARDS
        # a failure outside DCP must not leave the other ranks waiting inside it
        council.all(lambda: act("before shards"))
        council.all(lambda: _save(content.shards, place, council, act))
        parts = council.all(lambda: _digest_own(place, council.rank, act))
        rows = {f"{checkpoint.SHARDS}/{name}": row for part in parts for name, row in part.items()}
        return council.first(lambda: _finish(aside, content, rows, keep, act))
    except BaseException:
        if council.rank == 0:
            shutil.rmtree(aside, ignore_errors=True)
        raise


def read_whole(path: Path, optimizer: Mapping[str, object]) -> tuple[dict[str, torch.Tensor], State]:
    """(weights, optimizer's state) of a sharded checkpoint as full tensors, without other processes."""
    reader = _Reader(path / checkpoint.SHARDS)
    found = {name: torch.empty(row.size, dtype=row.properties.dtype) for name, row in _tensors(reader).items()}
    alone = "no_dist" in inspect.signature(load).parameters
    with warnings.catch_warnings():
        # DCP warns that nothing is distributed; that is intended
        warnings.simplefilter("ignore")
        _load(found, reader, path, no_dist=True) if alone else _load(found, reader, path)
    weights = {name.removeprefix("model."): tensor for name, tensor in found.items() if name.startswith("model.")}
    return weights, _filled(optimizer, found)


def read_into(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, object], council: Council
) -> None:
    """Read a sharded checkpoint into a sharded model and its optimizer, each rank only its own part; any
    number of ranks may have written it. GpudocError if it belongs to another model."""
    reader = _Reader(path / checkpoint.SHARDS)
    rows = _tensors(reader)
    names = {f"model.{plain_name(name)}": name for name in model.state_dict()}
    saved = {name for name in rows if name.startswith("model.")}
    if saved != set(names):
        other = sorted(saved ^ set(names))[:3]
        raise GpudocError(f"{path}: the weights are of another model: {', '.join(other)}")
    own = model.state_dict()
    targets = {key: own[name] for key, name in names.items()}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    groups = cast("list[dict[str, list[int]]]", state["param_groups"])
    of_number = dict(zip([number for group in groups for number in group["params"]], parameters, strict=True))
    for key in set(rows) - saved:
        number = key.split(".", 2)[1] if key.count(".") > 1 else ""
        if not number.isdecimal() or int(number) not in of_number:
            raise GpudocError(f"{path}: the optimizer state is of another model: {key}")
        targets[key] = _empty_like(of_number[int(number)], rows[key])
    _load(targets, reader, path, process_group=council.group)
    model.load_state_dict({name: targets[key] for key, name in names.items()})
    optimizer.load_state_dict(_filled(state, targets))


class _Writer(FileSystemWriter):
    """DCP's writer, which leaves the names of the temporary folder and of the user's disk out of the files."""

    def storage_meta(self) -> StorageMeta | None:
        found = super().storage_meta()
        if found is not None:
            found.checkpoint_id = None
        return found


class _Reader(FileSystemReader):
    """DCP's reader; its `.metadata` is a pickle, so only the classes that DCP writes are allowed."""

    def read_metadata(self, *args: object, **kwargs: object) -> Metadata:
        del args, kwargs
        with (Path(self.path) / ".metadata").open("rb") as stream, room_for_pickle(os.fstat(stream.fileno()).st_size):
            metadata = _Unpickler(stream).load()
        if not isinstance(metadata, Metadata):
            raise pickle.UnpicklingError("it contains no DCP metadata")
        for place in (metadata.storage_data or {}).values():
            if Path(place.relative_path).name != place.relative_path:
                raise pickle.UnpicklingError(f"it names a file elsewhere: {place.relative_path}")
        return metadata


class _Unpickler(pickle.Unpickler):
    """Builds only DCP's descriptions of tensors, since a pickle could otherwise call anything."""

    _KNOWN = frozenset(
        {
            ("torch", "Size"),
            ("torch.serialization", "_get_layout"),
            ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
            ("collections", "OrderedDict"),
        }
    )

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream)

    def find_class(self, module: str, name: str) -> object:
        """The class of that name if DCP writes it; UnpicklingError for any other."""
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        is_metadata = module == "torch.distributed.checkpoint.metadata" and name in _DESCRIPTIONS
        if is_dtype or is_metadata or (module, name) in self._KNOWN:
            return super().find_class(module, name)
        if (module, name) == ("builtins", "getattr"):
            return _member
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a checkpoint")


def _member(kind: object, name: str) -> object:
    """A member of an enumeration, which older versions of Python 3.11 get by getattr; refuses other attributes."""
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind[name]
    raise pickle.UnpicklingError(f"getattr({kind!r}, {name!r}) is not allowed in a checkpoint")


_DESCRIPTIONS = frozenset(
    {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    }
)


def _save(tensors: Mapping[str, torch.Tensor], place: Path, council: Council, act: Fault) -> None:
    save(dict(tensors), storage_writer=_Writer(place), process_group=council.group)
    act("inside shards")


def _digest_own(place: Path, rank: int, act: Fault) -> dict[str, dict[str, object]]:
    """Size and sha256 of the files that this rank wrote; the first one also describes them all."""
    files = sorted(place.glob(f"__{rank}_*.distcp")) + ([place / ".metadata"] if rank == 0 else [])
    found = {file.name: checkpoint.settle(file) for file in files}
    if rank == 0:
        sync_folder(place)
    act("after shards")
    return found


def _finish(aside: Path, content: Content, rows: checkpoint.Rows, keep: Sequence[int], act: Fault) -> Path:
    missing = [name for name in rows if not (aside / name).exists()]
    if missing:
        raise OSError(f"{missing[0]}, which another rank wrote, is not on this disk; all nodes must share the folder")
    return checkpoint.finish(aside, content, rows, keep=keep, act=act)


def _empty_like(parameter: torch.Tensor, row: TensorStorageMetadata) -> torch.Tensor:
    """Memory for one tensor of a parameter's optimizer state, sharded in the same way as the parameter."""
    dtype = row.properties.dtype
    if row.size == parameter.shape:
        return torch.empty_like(parameter.detach(), dtype=dtype)
    if isinstance(parameter, DTensor):
        return empty(row.size, dtype=dtype, device_mesh=parameter.device_mesh, placements=parameter.placements)
    return torch.empty(row.size, dtype=dtype, device=parameter.device)


def _tensors(reader: _Reader) -> dict[str, TensorStorageMetadata]:
    try:
        found = reader.read_metadata().state_dict_metadata
    except Exception as problem:
        # the reader raises many kinds of errors on bytes that are not metadata
        raise GpudocError(f"{reader.path}/.metadata cannot be read: {reason_of(problem)}") from problem
    return {name: row for name, row in found.items() if isinstance(row, TensorStorageMetadata)}


def _load(targets: dict[str, torch.Tensor], reader: _Reader, path: Path, **how: object) -> None:
    try:
        load(cast("State", targets), storage_reader=reader, **how)
    except CheckpointException as problem:
        raise GpudocError(f"{path}: the shards cannot be read: {reason_of(problem)}") from problem


def _filled(state: Mapping[str, object], found: Mapping[str, torch.Tensor]) -> State:
    """An optimizer's state with the sharded tensors in their places."""
    rows = cast("Mapping[int, Mapping[str, object]]", state["state"])
    filled = {
        number: {key: found.get(f"optimizer.{number}.{key}") if value is None else value for key, value in row.items()}
        for number, row in rows.items()
    }
    return {**state, "state": filled}
