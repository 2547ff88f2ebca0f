"""One rank of a trial: its device and threads, the process group, and what it reports when another rank died."""

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
    """One rank's place; several ranks on GPUs have one each, from the first on."""
    on_gpus = ranks > 1 and place.device.startswith("cuda")
    return place.model_copy(update={"rank": rank, "device": f"cuda:{rank}" if on_gpus else place.device})


def take_device(place: RankPlace) -> torch.device:
    """The device of this process, made the one that code which says "cuda" takes."""
    import torch

    device = torch.device(place.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def num_threads(request: TrialRequest, all_threads: int) -> int:
    """The threads that one rank computes with: its part of all, or as many as the request says."""
    return request.threads or max(1, all_threads // request.ranks)


def join(request: TrialRequest, place: RankPlace) -> Ranks:
    """Meet the other ranks over a file; the parent kills all of them when one fails, so nobody waits for the dead."""
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
    """What this rank has to tell; None when it only lost its peer. Memory may run out inside an exchange, too."""
    from gpudoc.train.ranks.distributed import AbandonedError, PeerLostError

    cause = problem.__cause__
    if isinstance(problem, AbandonedError) and isinstance(cause, Exception):
        return cause
    if not isinstance(problem, PeerLostError):
        return problem
    return cause if isinstance(cause, Exception) and classify_exception(cause).is_memory else None


def wait_to_be_killed() -> None:
    """Another rank died first and its end is the trial's: the parent sees it and kills this process too."""
    while True:
        time.sleep(_POLL_S)
