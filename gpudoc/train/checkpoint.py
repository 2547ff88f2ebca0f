"""Checkpoints that are whole or not there: written aside, fsynced, hashed, a manifest last, then renamed.

A checkpoint is a folder `step-N` with `model.safetensors` (plain names), `optimizer.pt`, `state.json`, one
`rng-rank<r>.pt` per rank and `manifest.json`, which holds size and sha256 of every other file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from gpudoc.errors import GpudocError

SCHEMA = "gpudoc.checkpoint.v1"
MANIFEST = "manifest.json"
_NAME = re.compile(r"step-(\d+)")

# called after each act of writing, so that tests can die or fail at every one of them
Fault = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What goes into a checkpoint: tensors on the host, other state as plain data."""

    step: int
    model: Mapping[str, torch.Tensor]
    optimizer: Mapping[str, object]
    state: Mapping[str, object]
    rng: Mapping[int, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Bad:
    """A checkpoint that must not be used: which file, and what is wrong with it."""

    path: Path
    reason: str


def plain_name(name: str) -> str:
    """A parameter's name without what DDP, torch.compile or activation checkpointing wrap around a module."""
    for wrapper in ("_orig_mod.", "_checkpoint_wrapped_module."):
        name = name.replace(wrapper, "")
    return name


def model_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the model's state on the host under plain names; tied tensors stand under each of their names."""
    found = {}
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            found[plain_name(name)] = whole(tensor.detach()).to("cpu", copy=True).contiguous()
    return found


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The full tensor of one that is spread over ranks, which all of them gather together; any other as it is."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor that is spread over ranks, sharing its memory; any other as it is."""
    take = getattr(tensor, "to_local", None)
    return tensor if take is None else take()


def host_copy(value: object) -> object:
    """A deep copy of nested state whose tensors lie on the host."""
    if isinstance(value, torch.Tensor):
        return whole(value.detach()).to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: host_copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(host_copy(item) for item in value)
    return value


def write(folder: Path, content: Content, *, keep: Sequence[int] | None = None, fault: Fault | None = None) -> Path:
    """Write `content` as folder/step-N, whole or not at all; returns its path. Raises OSError, and leaves no ruin.

    `keep` are the steps that stay; other checkpoints are removed afterwards. None are removed without it.
    """
    act = fault or _no_fault
    target = folder / f"step-{content.step}"
    aside = folder / f"{target.name}.tmp-{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        digests = {name: _write_file(aside / name, produce, act) for name, produce in _writers(content)}
        manifest = {"schema": SCHEMA, "step": content.step, "torch": torch.__version__, "files": digests}
        text = json.dumps(manifest, indent=1)
        _write_file(aside / MANIFEST, lambda path: path.write_text(text, "utf-8"), act)
        _sync_folder(aside)
        act("before rename")
        if target.exists():
            # the same step saved twice: the old one gives way only to a whole new one
            shutil.rmtree(target)
        aside.rename(target)
        act("after rename")
        _sync_folder(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    if keep is not None:
        remove_others(folder, {content.step, *keep})
    act("after pruning")
    return target


def remove_others(folder: Path, keep: set[int]) -> None:
    """Remove every checkpoint whose step is not in `keep`; the manifest first, so that none is ever half there."""
    for step, path in found_in(folder):
        if step not in keep:
            (path / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)


def remove_ruins(folder: Path) -> None:
    """Remove what an interrupted writer left behind."""
    for path in folder.glob("step-*.tmp-*"):
        shutil.rmtree(path, ignore_errors=True)


def found_in(folder: Path) -> list[tuple[int, Path]]:
    """(step, path) of every finished checkpoint folder, the newest first; whether they are whole is not checked."""
    try:
        entries = [(entry, _NAME.fullmatch(entry.name)) for entry in folder.iterdir()]
    except OSError:
        return []
    return sorted(((int(match[1]), entry) for entry, match in entries if match), reverse=True)


def newest_good(folder: Path) -> tuple[Path | None, list[Bad]]:
    """The newest checkpoint that verifies, and every newer one that does not, with its bad file."""
    bad: list[Bad] = []
    for _, path in found_in(folder):
        reason = verify(path)
        if reason is None:
            return path, bad
        bad.append(Bad(path, reason))
    return None, bad


def verify(path: Path) -> str | None:
    """What is wrong with the checkpoint, naming the file; None when sizes and digests of all files agree."""
    try:
        manifest = json.loads((path / MANIFEST).read_text("utf-8"))
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (OSError, ValueError) as problem:
        return f"{MANIFEST} cannot be read: {problem}"
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        return f"{MANIFEST} is not one of {SCHEMA}"
    files = manifest.get("files")
    if not isinstance(files, dict) or "state.json" not in files:
        return f"{MANIFEST} lists no state.json"
    for name, row in files.items():
        reason = _verify_file(path / name, row)
        if reason is not None:
            return f"{name}: {reason}"
    return None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A verified checkpoint in memory."""

    path: Path
    state: Mapping[str, object]
    model: Mapping[str, torch.Tensor]
    optimizer: Mapping[str, object]

    def rng(self, rank: int) -> Mapping[str, object] | None:
        """The random state of `rank`; None when the run had fewer ranks."""
        file = self.path / f"rng-rank{rank}.pt"
        return _load_pt(file) if file.exists() else None


def load(path: Path) -> Loaded:
    """Read a checkpoint that `verify` found whole; GpudocError when a file does not hold what it should."""
    try:
        state = json.loads((path / "state.json").read_text("utf-8"))
        model = load_file(path / "model.safetensors")
        optimizer = _load_pt(path / "optimizer.pt")
    except Exception as problem:
        raise GpudocError(f"{path}: not a checkpoint of this gpudoc: {type(problem).__name__}: {problem}") from problem
    return Loaded(path, state, model, optimizer)


def _writers(content: Content) -> Iterator[tuple[str, Callable[[Path], object]]]:
    yield "model.safetensors", lambda path: save_file(dict(content.model), path)
    yield "optimizer.pt", lambda path: torch.save(content.optimizer, path)
    for rank, state in content.rng.items():
        yield f"rng-rank{rank}.pt", lambda path, state=state: torch.save(state, path)  # type: ignore[misc]
    yield "state.json", lambda path: path.write_text(json.dumps(content.state, indent=1), "utf-8")


def _write_file(path: Path, produce: Callable[[Path], object], act: Fault) -> dict[str, object]:
    act(f"before {path.name}")
    produce(path)
    act(f"inside {path.name}")
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        row = {"bytes": os.fstat(stream.fileno()).st_size, "sha256": _sha256(stream)}
    act(f"after {path.name}")
    return row


def _verify_file(path: Path, row: object) -> str | None:
    if not isinstance(row, dict):
        return "no size and digest in the manifest"
    try:
        size = path.stat().st_size
        if size != row.get("bytes"):
            return f"{size} bytes instead of {row.get('bytes')}"
        with path.open("rb") as stream:
            digest = _sha256(stream)
    except FileNotFoundError:
        return "missing"
    except OSError as problem:
        return f"cannot be read: {problem.strerror}"
    return None if digest == row.get("sha256") else "its sha256 is not the one in the manifest"


def _sha256(stream: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := stream.read(1 << 22):
        digest.update(block)
    return digest.hexdigest()


def _load_pt(path: Path) -> Mapping[str, object]:
    found: Mapping[str, object] = torch.load(path, map_location="cpu", weights_only=True)
    return found


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _no_fault(place: str) -> None:
    del place
