"""Captures the whole state of a run at a step boundary from the live objects, and restores it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import cast

import torch
from torch import nn

from gpudoc.errors import GpudocError
from gpudoc.policy import Policy
from gpudoc.train.data.draws import Generators, Snapshot
from gpudoc.train.document import RescueRow
from gpudoc.train.ranks.protocol import inside
from gpudoc.train.state import checkpoint
from gpudoc.train.state.checkpoint import Content
from gpudoc.train.state.restore import Loaded
from gpudoc.train.state.staging import Staging
from gpudoc.train.step.step import Stepper

SCHEMA = "gpudoc.state.v1"


@dataclass(kw_only=True)
class RunProgress:
    """The progress of a run: plain numbers for state.json."""

    step: int = 0
    samples: int = 0
    micro_batch: int = 1
    activation_checkpointing: Policy = False
    eval_batch: int = 0
    reduce_after_backward: bool = False
    best_step: int | None = None
    best_loss: float | None = None
    evaluations_without_gain: int = 0
    num_skipped: int = 0
    samples_digest: int = 0
    rescues: list[RescueRow] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    first_loss: float | None = None
    final_loss: float | None = None


def capture(
    stepper: Stepper,
    progress: RunProgress,
    constants: Mapping[str, object],
    rng: Mapping[int, Mapping[str, object]],
    staging: Staging | None = None,
    *,
    whole: bool = False,
) -> Content:
    """A copy on the host of all state to restore. On a GPU a `staging` lets the copy run during the next step, up to
    its update; without one this waits for the device. `whole`: sharded ranks gather the full weights as well."""
    parts = stepper.parts
    scaler = None if stepper.scaler is None else stepper.scaler.state_dict()
    state = {"schema": SCHEMA, **asdict(progress), **constants, "scaler": scaler}
    shards: Mapping[str, torch.Tensor] = {}
    if parts.ranks.is_sharded:
        from gpudoc.train.ranks.fsdp import council_of
        from gpudoc.train.state.shards import capture as capture_shards

        copies = staging or Staging(torch.device("cpu"))
        shards, optimizer = capture_shards(parts.model, parts.optimizer, council_of(parts.ranks), copies)
        model = checkpoint.whole_model(parts.model, keep=parts.ranks.rank == 0) if whole else {}
    else:
        optimizer = cast("dict[str, object]", checkpoint.host_copy(parts.optimizer.state_dict(), staging))
        model = checkpoint.model_tensors(parts.model, staging)
    stepper.copying = None if staging is None else staging.finish()
    return Content(
        step=progress.step,
        model=model,
        optimizer=optimizer,
        state=state,
        rng=rng,
        shards=shards,
        copying=stepper.copying,
    )


def copied_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Bytes of the tensors that `capture` copies, in one process."""
    kept = [value for state in optimizer.state.values() for value in state.values()]
    tensors = [*model.state_dict().values(), *kept]
    plain = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
    return sum(part.nbytes for tensor in plain for part in inside(tensor).values() or [tensor])


def restore(loaded: Loaded, stepper: Stepper, constants: Mapping[str, object]) -> RunProgress:
    """Load a checkpoint into newly built objects; GpudocError if it belongs to another model or data set."""
    state = loaded.state
    if state.get("schema") != SCHEMA:
        raise GpudocError(f"{loaded.path}: state.json is not one of {SCHEMA}")
    for key in ("model_fingerprint", "num_samples", "data_fingerprint", "seed", "global_batch"):
        if state.get(key) != constants.get(key):
            raise GpudocError(
                f"{loaded.path}: {key.replace('_', ' ')} was {state.get(key)}, is {constants.get(key)}, so this "
                "checkpoint belongs to another run",
                hint="change it back, or start again: --resume never --run-dir runs/NEW",
            )
    before, now = (held.get("optimizer_state", "full") for held in (state, constants))
    if before != now:
        raise GpudocError(
            f"{loaded.path}: its optimizer_state is {before}, that of this run {now}",
            hint=f"--set optimizer_state={before}",
        )
    _restore_tensors(loaded, stepper)
    if stepper.scaler is not None and state.get("scaler"):
        stepper.scaler.load_state_dict(cast("dict[str, object]", state["scaler"]))
    known = set(RunProgress.__dataclass_fields__)
    return RunProgress(**{key: value for key, value in state.items() if key in known})  # type: ignore[arg-type]


def _restore_tensors(loaded: Loaded, stepper: Stepper) -> None:
    parts = stepper.parts
    if not parts.ranks.is_sharded:
        load_model(parts.model, loaded.model, str(loaded.path))
        parts.optimizer.load_state_dict(dict(loaded.optimizer))
        return
    from gpudoc.train.ranks.fsdp import council_of, spread_optimizer

    if loaded.is_sharded:
        from gpudoc.train.state.shards import read_into

        read_into(loaded.path, parts.model, parts.optimizer, loaded.optimizer, council_of(parts.ranks))
        return
    load_model(parts.model, loaded.model, str(loaded.path))
    parts.optimizer.load_state_dict(spread_optimizer(parts.optimizer, loaded.optimizer))


def load_model(model: nn.Module, tensors: Mapping[str, torch.Tensor], source: str) -> None:
    """Load tensors under plain names into a model, wrapped or not; GpudocError naming the first that does not fit."""
    own = {checkpoint.plain_name(name): name for name in model.state_dict()}
    missing = [name for name in own if name not in tensors]
    unknown = [name for name in tensors if name not in own]
    if missing or unknown:
        names = ", ".join([*missing[:2], *unknown[:2]])
        raise GpudocError(f"{source}: the weights are of another model: {names}")
    state = {own[name]: tensor for name, tensor in tensors.items()}
    if any(hasattr(parameter, "full_tensor") for parameter in model.parameters()):
        from gpudoc.train.ranks.fsdp import spread_model

        state = spread_model(model, state)
    try:
        model.load_state_dict(state)
    except RuntimeError as problem:
        raise GpudocError(
            f"{source}: the weights are of another model: {str(problem).splitlines()[-1].strip()}"
        ) from None


def rng_document(snapshot: Snapshot) -> dict[str, object]:
    """A snapshot as data that torch.load reads with weights_only."""
    version, words, gauss = cast("tuple[int, tuple[int, ...], float | None]", snapshot.python)
    found: dict[str, object] = {"python": [version, list(words), gauss], "torch": snapshot.torch}
    if snapshot.numpy is not None:
        name, keys, *rest = cast("tuple[str, torch.Tensor, int, int, float]", snapshot.numpy)
        found["numpy"] = [name, keys.tolist(), *rest]
    if snapshot.cuda is not None:
        found["cuda"] = snapshot.cuda
    return found


def restore_rng(document: Mapping[str, object], generators: Generators) -> None:
    """Restore the generators from a document of `rng_document`."""
    now = generators.snapshot()
    version, words, gauss = cast("tuple[int, list[int], float | None]", document["python"])
    numpy = document.get("numpy")
    if isinstance(numpy, list):
        import numpy as np

        numpy = (numpy[0], np.array(numpy[1], dtype=np.uint32), *numpy[2:])
    generators.restore(
        Snapshot(
            python=(version, tuple(words), gauss),
            numpy=numpy,
            torch=cast(torch.Tensor, document["torch"]),
            cuda=cast("torch.Tensor | None", document.get("cuda", now.cuda)),
            marks=(None, None, None),
        )
    )
