"""One rank of a trial: its device and threads, the process group, and its report if another rank died."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from gpudoc.tune.trial.outcome import classify_exception

if TYPE_CHECKING:
    import torch

    from gpudoc.train.ranks.protocol import Ranks
    from gpudoc.tune.trial.messages import TrialRequest
    from gpudoc.tune.trial.wire import RankPlace

_POLL_S = 1.0


def place_of(place: RankPlace, rank: int, ranks: int) -> RankPlace:
    """One rank's place; several ranks on GPUs get one GPU each, from the first on."""
    on_gpus = ranks > 1 and place.device.startswith("cuda")
    return place.model_copy(update={"rank": rank, "device": f"cuda:{rank}" if on_gpus else place.device})


def take_device(place: RankPlace) -> torch.device:
    """The device of this process; also makes it the default of code that says "cuda"."""
    import torch

    device = torch.device(place.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def num_threads(request: TrialRequest, all_threads: int) -> int:
    """The number of compute threads of one rank: its part of all, or the number in the request."""
    return request.threads or max(1, all_threads // request.ranks)


def join(request: TrialRequest, place: RankPlace) -> Ranks:
    """Join the other ranks through a file; the parent kills all ranks if one fails, so none waits for a dead rank."""
    import torch.distributed

    from gpudoc.train.ranks import distributed, meeting

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    device = take_device(place)
    store = torch.distributed.FileStore(place.store, request.ranks)  # type: ignore[attr-defined]
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    torch.distributed.init_process_group(backend, store=store, rank=place.rank, world_size=request.ranks)
    mine = meeting.Place(rank=place.rank, world=request.ranks, local_rank=place.rank, local_world=request.ranks)
    return distributed.Distributed(mine, device)


def own_failure(problem: Exception) -> Exception | None:
    """The failure of this rank itself; None if it only lost its peer. Memory may run out inside an exchange, too."""
    from gpudoc.train.ranks.distributed import AbandonedError, PeerLostError

    cause = problem.__cause__
    if isinstance(problem, AbandonedError) and isinstance(cause, Exception):
        return cause
    if not isinstance(problem, PeerLostError):
        return problem
    return cause if isinstance(cause, Exception) and classify_exception(cause).is_memory else None


def wait_to_be_killed() -> None:
    """Wait for the parent's kill: another rank died first, and its end is the end of the trial."""
    while True:
        time.sleep(_POLL_S)
