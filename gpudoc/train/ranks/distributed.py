"""Several processes that train together: how they meet, vote on the host, and share gradients."""

from __future__ import annotations

import atexit
import os
import platform
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

import gpudoc
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.shortage import is_out_of_memory
from gpudoc.train.ranks.protocol import OOM, Alone, Ranks, off_stdout
from gpudoc.train.ranks.pulse import BROADCAST, GATHER, REDUCE, TOTAL, VOTE, Pulse, open_pulse

T = TypeVar("T")

JOIN_SECONDS = 300.0
# a rank may write a checkpoint or read slow data while the others wait
PATIENCE_SECONDS = 3600.0
BUCKET_BYTES = 25 * 2**20
# DDP overlaps from here on: until then, and after a rescue, an OOM on one rank must find the others able to vote
PROBATION_STEPS = 50


class PeerLostError(GpudocError):
    """Another rank ended or cannot be reached, so this one cannot go on."""


class AbandonedError(GpudocError):
    """This rank cannot go on where the others wait for it: all must start again."""


class UnusedError(AbandonedError):
    """A parameter had no gradient while backward reduced, for the first time: DDP cannot tell the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which of the processes this one is, as torchrun or the sbatch file says in the environment."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    restarts: int = 0

    @property
    def is_one_node(self) -> bool:
        """Whether all ranks run on this machine."""
        return self.local_world == self.world


def place_here(environment: Mapping[str, str] | None = None) -> Place | None:
    """This process's place; None when nobody started it as one of several. GpudocError when the variables disagree."""
    variables = os.environ if environment is None else environment
    if "RANK" not in variables or "WORLD_SIZE" not in variables:
        return None
    try:
        place = Place(
            rank=int(variables["RANK"]),
            world=int(variables["WORLD_SIZE"]),
            local_rank=int(variables.get("LOCAL_RANK", "0")),
            local_world=int(variables.get("LOCAL_WORLD_SIZE", "1")),
            restarts=int(variables.get("TORCHELASTIC_RESTART_COUNT", "0")),
        )
    except ValueError as problem:
        raise GpudocError(f"RANK, WORLD_SIZE or LOCAL_RANK is not a number: {problem}") from None
    if not 0 <= place.rank < place.world or place.local_rank < 0:
        raise GpudocError(f"RANK {place.rank} of WORLD_SIZE {place.world} cannot be", hint="start it with torchrun")
    return place


def ranks_here(device_name: str) -> Ranks:
    """This process's ranks, met if there are others; `device_name` is what --device came to, 'cpu' or 'cuda'."""
    place = place_here()
    if place is None or place.world == 1:
        return Alone()
    device = torch.device("cuda", place.local_rank) if device_name.startswith("cuda") else torch.device(device_name)
    return join(place, device)


def join(place: Place, device: torch.device) -> Distributed:
    """Meet the other ranks; GpudocError when they do not come, run other versions, or the port is taken."""
    if place.is_one_node:
        # the host's name may resolve to an address that nothing listens on
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    pulse = open_pulse(place.rank, place.world)
    try:
        store = meet(place, _open_store(place))
        backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
        patience = timedelta(seconds=PATIENCE_SECONDS)
        with off_stdout():
            dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.world, timeout=patience)
    except (RuntimeError, ValueError) as problem:
        raise _explain_meeting(place, problem) from problem
    ranks = Distributed(place, device, pulse)
    # a group that outlives the interpreter's end aborts the process now and then, after work that went well
    atexit.register(ranks.leave)
    check_versions(ranks)
    return ranks


def meet(place: Place, store: Store) -> Store:
    """A part of `store` that only the ranks of this attempt use.

    A store that the launcher keeps still holds the addresses of ranks that were killed. So rank 0 names the attempt
    anew, and the others go on asking until a rank 0 that lives answers them by that name.
    """
    until = time.monotonic() + JOIN_SECONDS
    if place.rank == 0:
        attempt = uuid.uuid4().hex
        store.set("gpudoc/attempt", attempt)
        for other in range(1, place.world):
            greeting = store.get(f"gpudoc/{attempt}/hello/{other}").decode()
            store.set(f"gpudoc/{attempt}/welcome/{other}/{greeting}", "1")
        return PrefixStore(f"gpudoc/{attempt}", store)
    me = uuid.uuid4().hex
    while time.monotonic() < until:
        attempt = store.get("gpudoc/attempt").decode()
        store.set(f"gpudoc/{attempt}/hello/{place.rank}", me)
        for _ in range(20):
            if store.check([f"gpudoc/{attempt}/welcome/{place.rank}/{me}"]):
                return PrefixStore(f"gpudoc/{attempt}", store)
            time.sleep(0.05)
    raise RuntimeError("rank 0 did not answer")


class Distributed:
    """The ranks of one run over torch.distributed; what is agreed upon travels through gloo, on the host.

    Under gloo forward and backward hold no collective, so that any rank may fail in them and still vote. Under NCCL
    this is so in the first steps after a start or a rescue; later DDP reduces while backward runs, unless a parameter
    was seen without a gradient: DDP would wait for it, and leave what it is bundled with as it is.
    """

    def __init__(self, place: Place, device: torch.device, pulse: Pulse | None = None) -> None:
        self.pulse = pulse or Pulse()
        self.rank = place.rank
        self.world = place.world
        self.local_rank = place.local_rank
        self.local_world = place.local_world
        self.is_sharded = False
        self.place = place
        self.device = device
        self._probation = PROBATION_STEPS
        self._parallel: nn.parallel.DistributedDataParallel | None = None
        self._some_unused = False
        # whether this step's backward holds collectives: a rank that fails in one leaves the others waiting
        self.is_overlapping = False

    def vote(self, flags: int) -> int:
        """The bitwise or of every rank's flags; raises when this rank failed in a backward where others wait for it."""
        if flags & OOM and self.is_overlapping:
            raise abandoned()
        if self.is_overlapping and self._parallel is not None:
            _check_used(self._parallel)
        votes = torch.tensor([flags], dtype=torch.int32)
        with talking(self.pulse, VOTE):
            dist.all_reduce(votes, op=dist.ReduceOp.BOR)
        found = int(votes.item())
        if found & OOM:
            self._probation = PROBATION_STEPS
        if found:
            # this step is not finished
            self.is_overlapping = False
        return found

    def total(self, values: Sequence[float]) -> list[float]:
        """The sums of `values` over all ranks, in double precision."""
        sums = torch.tensor(list(values), dtype=torch.float64)
        with talking(self.pulse, TOTAL):
            dist.all_reduce(sums)
        found: list[float] = sums.tolist()
        return found

    def gather(self, value: T) -> list[T]:
        """Every rank's `value` in the order of ranks; plain data only."""
        found: list[T | None] = [None] * self.world
        with talking(self.pulse, GATHER):
            dist.all_gather_object(found, value)
        return found  # type: ignore[return-value]

    def wrap(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The model as it is called in training, with rank 0's weights everywhere; GpudocError when models differ."""
        del dtype
        self._start_alike(model)
        if self.device.type == "cpu":
            return model
        self._parallel = nn.parallel.DistributedDataParallel(
            model, device_ids=[self.device], broadcast_buffers=False, gradient_as_bucket_view=True
        )
        return self._parallel

    def _start_alike(self, model: nn.Module) -> None:
        rows = [f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in model.state_dict().items()]
        for other, found in enumerate(self.gather(rows)):
            if found != rows:
                raise GpudocError(f"rank {other} has built another model than rank {self.rank}", hint=_SAME_CODE)
        with torch.no_grad(), talking(self.pulse, BROADCAST):
            for tensor in (*model.parameters(), *model.buffers()):
                dist.broadcast(tensor.detach(), src=0)

    def end_probation(self) -> None:
        """Let DDP reduce while backward runs after one more step, as it does once a run is under way."""
        self._probation = min(1, self._probation)

    def reduce_after_backward(self) -> None:
        """Never let DDP reduce while backward runs: some parameter goes without a gradient now and then."""
        self._some_unused = True

    def begin_step(self) -> None:
        """Before a step's first micro batch: all ranks reduce in its last backward, or none does.

        Settled for the whole step: a rank that fails in an earlier micro batch must know that the others will reduce.
        """
        self.is_overlapping = self._parallel is not None and self._probation == 0 and not self._some_unused

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[object]:
        """Around one micro batch's forward and backward; only the last may reduce."""
        del model
        if self._parallel is None or (last and self.is_overlapping):
            return nullcontext()
        return self._parallel.no_sync()

    def reduce_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Make every rank's gradients their mean; one that no rank has stays None."""
        if self.is_overlapping:
            self.is_overlapping = False
            return
        with torch.no_grad(), talking(self.pulse, REDUCE):
            for bucket in buckets(parameters):
                self._reduce(bucket)
        self._probation = max(0, self._probation - 1)

    def agree_on_worst(self, found: torch.Tensor) -> None:
        """Nothing to do: reduced gradients are the same everywhere, so every rank finds the same."""

    def barrier(self) -> None:
        """Return when all ranks have come here."""
        self.vote(0)

    def align_buffers(self, model: nn.Module) -> None:
        """Give all ranks rank 0's buffers (running statistics), which each updated from its own batches."""
        with torch.no_grad(), talking(self.pulse, BROADCAST):
            for buffer in model.buffers():
                dist.broadcast(buffer.detach(), src=0)

    def leave(self) -> None:
        """End the group; the others may go on to their own end."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def _reduce(self, bucket: Sequence[nn.Parameter]) -> None:
        sparse = [p for p in bucket if p.grad is not None and p.grad.is_sparse]
        for parameter in sparse:
            gradient = parameter.grad
            assert gradient is not None
            parameter.grad = gradient.coalesce()
            dist.all_reduce(parameter.grad)
            parameter.grad /= self.world
        dense = [p for p in bucket if p.grad is None or not p.grad.is_sparse]
        if not dense:
            return
        first = dense[0]
        # one number per parameter behind the gradients: how many ranks have one
        has = torch.tensor([p.grad is not None for p in dense], dtype=first.dtype, device=first.device)
        parts = [torch.zeros_like(p).view(-1) if p.grad is None else p.grad.reshape(-1) for p in dense]
        flat = torch.cat([*parts, has])
        dist.all_reduce(flat)
        # reading the counts waits for the device: only where they can say something new
        known = self._probation == 0 and all(p.grad is not None for p in dense)
        counts = None if known else flat[-len(dense) :].tolist()
        self._some_unused |= counts is not None and min(counts) < self.world
        flat /= self.world
        place = 0
        for number, parameter in enumerate(dense):
            part = flat[place : place + parameter.numel()]
            place += parameter.numel()
            if counts is not None and not counts[number]:
                continue
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(part.view(parameter.shape))


def buckets(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """The parameters in runs of one type and device, of at most 25 MiB unless one alone is larger."""
    bucket: list[nn.Parameter] = []
    size = 0
    for parameter in parameters:
        bytes_here = parameter.numel() * parameter.element_size()
        alike = bool(bucket) and (parameter.dtype, parameter.device) == (bucket[0].dtype, bucket[0].device)
        if bucket and (not alike or size + bytes_here > BUCKET_BYTES):
            yield bucket
            bucket, size = [], 0
        bucket.append(parameter)
        size += bytes_here
    if bucket:
        yield bucket


def abandoned(during: str = "gradients were being exchanged") -> AbandonedError:
    """The error of a rank that ran out of memory where no vote can be taken; `during` says where."""
    return AbandonedError(
        f"out of memory while {during}: the ranks start again from the last checkpoint with a smaller micro batch",
        hint="if nothing restarts them: run the same command again with a smaller --batch-size",
        exit_code=ExitCode.BAD_ANSWER,
    )


def _check_used(model: nn.Module) -> None:
    """UnusedError when a parameter has no gradient after a backward in which DDP was to reduce it."""
    if any(parameter.requires_grad and parameter.grad is None for parameter in model.parameters()):
        raise UnusedError(
            "a parameter that had a gradient in every step so far has none in this one: the ranks start again from the "
            "last checkpoint and exchange gradients after backward from then on",
            hint="if nothing restarts them: run the same command again",
            exit_code=ExitCode.BAD_ANSWER,
        )


_SAME_CODE = "every rank must run the same code and the same config"


@contextmanager
def talking(pulse: Pulse, call: int) -> Iterator[None]:
    """A collective, shown by `pulse`; its errors as what they mean: a rank is gone, or this one has no memory."""
    pulse.enter(call)
    try:
        yield
    except (RuntimeError, MemoryError) as problem:
        if is_out_of_memory(problem):
            raise abandoned() from problem
        # gloo begins with a place in its sources and ends with general advice
        text = re.sub(r"^\[[^]]*\] ", "", str(problem).splitlines()[0]).partition(". This is")[0]
        raise PeerLostError(
            f"another rank is gone: {text}",
            hint="its own message says why; run the same command again to go on from the last checkpoint",
            exit_code=ExitCode.BAD_ANSWER,
        ) from problem
    finally:
        pulse.leave()


def _open_store(place: Place) -> Store:
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not host or not port.isdigit():
        raise GpudocError("RANK is set and MASTER_ADDR or MASTER_PORT is not", hint="start it with torchrun")
    kept_by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return TCPStore(
        host,
        int(port),
        place.world,
        is_master=place.rank == 0 and not kept_by_agent,
        timeout=timedelta(seconds=JOIN_SECONDS),
        multi_tenant=True,
    )


def _explain_meeting(place: Place, problem: Exception) -> GpudocError:
    text = str(problem).splitlines()[0]
    where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    if "EADDRINUSE" in text or "in use" in text:
        hint = "MASTER_PORT=0 lets torchrun choose; or end the other job"
        return GpudocError(f"{where}: the port is in use", hint=hint)
    return GpudocError(
        f"rank {place.rank} of {place.world} could not meet the others at {where} within {JOIN_SECONDS:.0f} s: {text}",
        hint="is every rank started, and does a firewall let that port through?",
        exit_code=ExitCode.BAD_ANSWER,
    )


def check_versions(ranks: Distributed) -> None:
    """GpudocError when ranks run different versions of gpudoc, torch or Python."""
    mine = {"gpudoc": gpudoc.__version__, "torch": torch.__version__, "Python": platform.python_version()}
    for other, theirs in enumerate(ranks.gather(mine)):
        for name, version in mine.items():
            if theirs[name] != version:
                raise GpudocError(
                    f"rank {ranks.rank} runs {name} {version}, rank {other} runs {theirs[name]}",
                    hint="the same environment on every node, for example one on a shared file system",
                )
