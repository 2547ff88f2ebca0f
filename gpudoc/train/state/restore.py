"""Reads a checkpoint back, in any kind of run: one process, or sharded ranks."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import load_file

from gpudoc.errors import GpudocError
from gpudoc.train.state.checkpoint import PLACE, SHARDS, WEIGHTS
from gpudoc.workload.weights import load_plain


@dataclass(frozen=True, slots=True)
class Loaded:
    """A verified checkpoint in memory; `model` is empty if sharded ranks wrote it and it was not read whole."""

    path: Path
    state: Mapping[str, object]
    model: Mapping[str, torch.Tensor]
    optimizer: Mapping[str, object]

    def rng(self, rank: int) -> Mapping[str, object] | None:
        """The random state of `rank`; None if the run had fewer ranks."""
        file = self.path / f"rng-rank{rank}.pt"
        return _load_pt(file) if file.exists() else None

    def place(self) -> Mapping[str, object] | None:
        """The position of the stream of data; None if it is not a stream, or could not give its position."""
        file = self.path / PLACE
        return _load_pt(file) if file.exists() else None

    @property
    def is_sharded(self) -> bool:
        """Whether sharded ranks wrote it in parts."""
        return (self.path / SHARDS).is_dir()


def load(path: Path, *, parts: bool = False) -> Loaded:
    """Read a checkpoint that `verify` found complete; GpudocError if a file holds something else.

    `parts`: do not read the parts of sharded ranks, since each rank reads its own later.
    """
    sharded = (path / SHARDS).is_dir()
    try:
        state = json.loads((path / "state.json").read_text("utf-8"))
        if state.get("optimizer_state", "full") != "full":
            _know_narrow_state(path)
        model = {} if sharded else load_file(path / WEIGHTS)
        optimizer = _load_pt(path / "optimizer.pt")
        if sharded and not parts:
            from gpudoc.train.state.shards import read_whole

            model, optimizer = read_whole(path, optimizer)
    except GpudocError:
        raise
    except Exception as problem:
        raise GpudocError(f"{path}: not a checkpoint of this gpudoc: {type(problem).__name__}: {problem}") from problem
    return Loaded(path, state, model, optimizer)


def _know_narrow_state(path: Path) -> None:
    """Import torchao, which registers the tensors of such a state; torch cannot read them before."""
    try:
        importlib.import_module("torchao.optim")
    except ImportError as problem:
        raise GpudocError(
            f"{path}: its optimizer state is from torchao, which cannot be imported: {problem}",
            hint="pip install torchao",
        ) from problem


def _load_pt(path: Path) -> Mapping[str, object]:
    return cast("Mapping[str, object]", load_plain(path))
