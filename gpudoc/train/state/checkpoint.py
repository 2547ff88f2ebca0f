"""Checkpoints that are complete or absent: written to another folder, fsynced, hashed, a manifest last, then renamed.

A checkpoint is a folder `step-N` with `model.safetensors` (plain names), `optimizer.pt`, `state.json`, one
`rng-rank<r>.pt` per rank and `manifest.json`, which holds size and sha256 of every other file. Sharded ranks write
their parts of weights and optimizer into `dcp/` instead; then only the best and the last have `model.safetensors`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors.torch import save_file
from torch import nn

from gpudoc.patterns import Pattern
from gpudoc.train.ranks.protocol import inside, whole
from gpudoc.train.state.staging import Copying, Staging
from gpudoc.writing import sync_folder

SCHEMA = "gpudoc.checkpoint.v1"
MANIFEST = "manifest.json"
SHARDS = "dcp"
WEIGHTS = "model.safetensors"
PLACE = "data.pt"
_NAME = Pattern(r"step-(\d+)")
# the text between a checkpoint's name and its writer's process id, or the word that marks it as being replaced
_RUIN, _REPLACED = ".tmp-", "replaced"

# called at each point of writing, so that tests can die or fail at every one of them
Fault = Callable[[str], None]
# name in the folder -> {"bytes", "sha256"}
Rows = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The content of a checkpoint: tensors on the host, other state as plain data.

    `place` is the position of a stream of data. `shards` are this rank's parts of sharded tensors; `model` is then
    empty if no whole file is wanted. The writer waits for `copying` before it reads anything.
    """

    step: int
    model: Mapping[str, torch.Tensor]
    optimizer: Mapping[str, object]
    state: Mapping[str, object]
    rng: Mapping[int, Mapping[str, object]]
    shards: Mapping[str, torch.Tensor] = field(default_factory=dict)
    place: bytes | None = None
    copying: Copying | None = None


@dataclass(frozen=True, slots=True)
class Bad:
    """A checkpoint that must not be used, and the reason, which names the file."""

    path: Path
    reason: str


def plain_name(name: str) -> str:
    """A parameter's name without the prefixes that torch.compile or activation checkpointing add."""
    for wrapper in ("_orig_mod.", "_checkpoint_wrapped_module."):
        name = name.replace(wrapper, "")
    return name


def model_tensors(model: nn.Module, staging: Staging | None = None) -> dict[str, torch.Tensor]:
    """Copies of the model's state on the host under plain names; tied tensors appear under each of their names.

    With a `staging` their copies may still be in progress.
    """
    steady = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    copies = staging or Staging(torch.device("cpu"))
    return {
        plain_name(name): copies.take(f"model.{name}", tensor, moves=name not in steady, contiguous=True)
        for name, tensor in model.state_dict().items()
        if isinstance(tensor, torch.Tensor)
    }


def whole_model(model: nn.Module, *, keep: bool) -> dict[str, torch.Tensor]:
    """The full tensors of a sharded model, which all ranks gather one by one; empty without `keep`."""
    found = {}
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            full = whole(tensor.detach())
            if keep:
                found[plain_name(name)] = full.to("cpu", copy=True).contiguous()
    return found


def host_copy(value: object, staging: Staging | None = None, name: str = "optimizer") -> object:
    """A deep copy of nested state with tensors on the host; with a `staging` copies may still be in progress."""
    if isinstance(value, torch.Tensor):
        inner = inside(value)
        if inner:
            made: Any = value
            copies = {part: host_copy(tensor, staging, f"{name}.{part}") for part, tensor in inner.items()}
            return made.__tensor_unflatten__(copies, made.__tensor_flatten__()[1], value.shape, value.stride())
        if staging is None:
            return whole(value.detach()).to("cpu", copy=True)
        return staging.take(name, value)
    if isinstance(value, Mapping):
        return {key: host_copy(item, staging, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(host_copy(item, staging, f"{name}.{place}") for place, item in enumerate(value))
    return value


def write(folder: Path, content: Content, *, keep: Sequence[int] | None = None, fault: Fault | None = None) -> Path:
    """Write `content` as folder/step-N, whole or not at all; returns its path. After an OSError no part of it remains.

    `keep` are the steps that stay; other checkpoints are removed afterwards. Without `keep` none are removed.
    """
    aside = open_aside(folder, content.step)
    try:
        return finish(aside, content, {}, keep=keep, act=fault or no_fault)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def open_aside(folder: Path, step: int) -> Path:
    """An empty folder next to the final one, with a name that cannot be mistaken for a checkpoint's."""
    aside = folder / f"step-{step}{_RUIN}{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    return aside


def finish(aside: Path, content: Content, rows: Rows, *, keep: Sequence[int] | None, act: Fault) -> Path:
    """Write the missing files into `aside` (those of `rows` exist already), then the manifest; then rename it."""
    folder = aside.parent
    target = folder / f"step-{content.step}"
    digests = {**rows, **{name: _write_file(aside / name, produce, act) for name, produce in _writers(content)}}
    manifest = {"schema": SCHEMA, "step": content.step, "torch": torch.__version__, "files": digests}
    text = json.dumps(manifest, indent=1)
    _write_file(aside / MANIFEST, lambda path: path.write_text(text, "utf-8"), act)
    sync_folder(aside)
    act("before rename")
    before = _move_aside(target)
    act("between")
    try:
        aside.rename(target)
    except OSError:
        if before is not None:
            before.rename(target)
        raise
    act("after rename")
    sync_folder(folder)
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)
    if keep is not None:
        remove_others(folder, {content.step, *keep})
    act("after pruning")
    return target


def remove_others(folder: Path, keep: set[int]) -> None:
    """Remove every checkpoint whose step is not in `keep`; the manifest first, so that none is ever half present."""
    for step, path in found_in(folder):
        if step not in keep:
            (path / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)


def _move_aside(target: Path) -> Path | None:
    """Rename the existing checkpoint of a step that is saved again; None if there is none."""
    if not target.exists():
        return None
    aside = target.with_name(f"{target.name}{_RUIN}{_REPLACED}")
    shutil.rmtree(aside, ignore_errors=True)
    target.rename(aside)
    return aside


def ruins(folder: Path) -> list[Path]:
    """Folders left by interrupted writers: for each step, the new one comes before the one that it replaces."""
    return sorted(folder.glob(f"step-*{_RUIN}*"), key=lambda path: path.name.endswith(_REPLACED))


def settle_ruins(folder: Path) -> None:
    """Keep a complete checkpoint of an interrupted writer if its step has no other, and remove the rest.

    The caller must hold the run's lock: a live writer would lose its files.
    """
    for path in ruins(folder):
        target = path.with_name(path.name.partition(_RUIN)[0])
        if _NAME.fullmatch(target.name) and not target.exists() and verify(path) is None:
            path.rename(target)
        else:
            shutil.rmtree(path, ignore_errors=True)


def found_in(folder: Path) -> list[tuple[int, Path]]:
    """(step, path) of every finished checkpoint folder, the newest first; does not check that they are complete."""
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
    """The fault of the checkpoint, with the file's name; None if sizes and digests of all files match."""
    try:
        manifest = json.loads((path / MANIFEST).read_text("utf-8"))
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (OSError, ValueError, RecursionError) as problem:
        return f"{MANIFEST} cannot be read: {problem}"
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        return f"{MANIFEST} is not one of {SCHEMA}"
    files = manifest.get("files")
    if not isinstance(files, dict) or "state.json" not in files:
        return f"{MANIFEST} lists no state.json"
    for name, row in files.items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            return f"{MANIFEST} names a file elsewhere: {name}"
        reason = _verify_file(path / name, row)
        if reason is not None:
            return f"{name}: {reason}"
    return None


def _writers(content: Content) -> Iterator[tuple[str, Callable[[Path], object]]]:
    if content.model:
        yield WEIGHTS, lambda path: save_file(dict(content.model), path)
    yield "optimizer.pt", lambda path: torch.save(content.optimizer, path)
    for rank, state in content.rng.items():
        yield f"rng-rank{rank}.pt", lambda path, state=state: torch.save(state, path)  # type: ignore[misc]
    place = content.place
    if place is not None:
        yield PLACE, lambda path: path.write_bytes(place)
    yield "state.json", lambda path: path.write_text(json.dumps(content.state, indent=1), "utf-8")


def _write_file(path: Path, produce: Callable[[Path], object], act: Fault) -> dict[str, object]:
    act(f"before {path.name}")
    produce(path)
    act(f"inside {path.name}")
    row = settle(path)
    act(f"after {path.name}")
    return row


def settle(path: Path) -> dict[str, object]:
    """Flush a written file to the disk; returns its size and sha256."""
    # Windows flushes only a file that is open for writing
    with path.open("r+b") as stream:
        os.fsync(stream.fileno())
        return {"bytes": os.fstat(stream.fileno()).st_size, "sha256": _sha256(stream)}


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
    return None if digest == row.get("sha256") else "its sha256 differs from the manifest"


def _sha256(stream: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := stream.read(1 << 22):
        digest.update(block)
    return digest.hexdigest()


def no_fault(place: str) -> None:
    """Does nothing: the `Fault` outside of tests."""
    del place
