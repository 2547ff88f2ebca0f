"""Several processes that train together: they meet, vote on the host, and share gradients."""

from __future__ import annotations

import atexit
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn

import gpudoc
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.patterns import Pattern
from gpudoc.process.shortage import is_out_of_memory
from gpudoc.train.ranks.meeting import Met, Place, explained, meet_others
from gpudoc.train.ranks.protocol import OOM, Alone, Ranks, off_stdout
from gpudoc.train.ranks.pulse import BROADCAST, GATHER, REDUCE, TOTAL, VOTE, Pulse

T = TypeVar("T")

# a rank may write a checkpoint or read slow data while the others wait
PATIENCE_SECONDS = 3600.0
BUCKET_BYTES = 25 * 2**20
# DDP overlaps only after this many steps: at first, and after a rescue, ranks must be able to vote on an OOM
PROBATION_STEPS = 50


class PeerLostError(GpudocError):
    """Another rank ended or cannot be reached, so this one cannot go on."""


class AbandonedError(GpudocError):
    """This rank cannot continue while the others wait for it: all must start again."""


class UnusedError(AbandonedError):
    """A parameter had no gradient for the first time while backward reduced: DDP cannot inform the other ranks."""


def ranks_here(device_name: str, met: Met | None) -> Ranks:
    """The group of this process and the ranks that it met; `device_name` is its device, 'cpu' or 'cuda:1'."""
    return Alone() if met is None else _join(met, torch.device(device_name))


def join(place: Place, device: torch.device) -> Distributed:
    """Meet the other ranks; GpudocError if they do not come, run other versions, or the port is taken."""
    return _join(meet_others(place), device)


def _join(met: Met, device: torch.device) -> Distributed:
    place = met.place
    if place.is_one_node:
        # the host's name may resolve to an address that nothing listens on
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        # and other machines must not reach the port on which NCCL listens for its ranks
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    patience = timedelta(seconds=PATIENCE_SECONDS)
    with explained(place), off_stdout():
        dist.init_process_group(backend, store=met.store, rank=place.rank, world_size=place.world, timeout=patience)
    ranks = Distributed(place, device, met.pulse)
    # a group that still exists when the interpreter ends sometimes aborts the process, although the work succeeded
    atexit.register(ranks.leave)
    check_versions(ranks)
    return ranks


class Distributed:
    """The ranks of one run over torch.distributed; they agree through gloo, on the host.

    Under gloo forward and backward contain no collective, so any rank may fail in them and still vote. Under NCCL
    this holds in the first steps after a start or a rescue; later DDP reduces while backward runs, unless a parameter
    once had no gradient: DDP would wait for it, and would not reduce the other gradients of its bucket.
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
        # whether this step's backward contains collectives: a rank that fails in it leaves the others waiting
        self.is_overlapping = False

    def vote(self, flags: int) -> int:
        """The bitwise or of every rank's flags; raises if this rank failed in a backward and the others wait for it."""
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
        """The model to call in training, with rank 0's weights on all ranks; GpudocError if the models differ."""
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
                raise GpudocError(f"rank {other} has built a different model from rank {self.rank}", hint=_SAME_CODE)
        with torch.no_grad(), talking(self.pulse, BROADCAST):
            for tensor in (*model.parameters(), *model.buffers()):
                dist.broadcast(tensor.detach(), src=0)

    def end_probation(self) -> None:
        """Let DDP reduce while backward runs after one more step, as it does later in a run."""
        self._probation = min(1, self._probation)

    def reduce_after_backward(self) -> None:
        """Never let DDP reduce while backward runs: some parameter sometimes has no gradient."""
        self._some_unused = True

    def begin_step(self) -> None:
        """Decide before a step's first micro batch whether all ranks reduce in its last backward, or none does.

        The decision covers the whole step: a rank that fails in an earlier micro batch must know that others reduce.
        """
        self.is_overlapping = self._parallel is not None and self._probation == 0 and not self._some_unused

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[object]:
        """The context for one micro batch's forward and backward; only the last may reduce."""
        del model
        if self._parallel is None or (last and self.is_overlapping):
            return nullcontext()
        return self._parallel.no_sync()

    def reduce_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace every rank's gradients by their mean; a gradient that no rank has stays None."""
        if self.is_overlapping:
            self.is_overlapping = False
            return
        with torch.no_grad(), talking(self.pulse, REDUCE):
            for bucket in buckets(parameters):
                self._reduce(bucket)
        self._probation = max(0, self._probation - 1)

    def agree_on_worst(self, found: torch.Tensor) -> None:
        """Does nothing: reduced gradients are the same on all ranks, and so is the result."""

    def barrier(self) -> None:
        """Return when all ranks have reached this call."""
        self.vote(0)

    def align_buffers(self, model: nn.Module) -> None:
        """Give all ranks rank 0's buffers (running statistics); each rank updated them from its own batches."""
        with torch.no_grad(), talking(self.pulse, BROADCAST):
            for buffer in model.buffers():
                dist.broadcast(buffer.detach(), src=0)

    def leave(self) -> None:
        """End the group; the other ranks may continue to their own end."""
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
        # after the gradients, one number per parameter: how many ranks have its gradient
        has = torch.tensor([p.grad is not None for p in dense], dtype=first.dtype, device=first.device)
        parts = [torch.zeros_like(p).view(-1) if p.grad is None else p.grad.reshape(-1) for p in dense]
        flat = torch.cat([*parts, has])
        dist.all_reduce(flat)
        # reading the counts waits for the device, so they are read only if they may be new
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
    """The parameters in groups of one type and device, of at most 25 MiB unless one parameter is larger."""
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
    """The error of a rank that ran out of memory at a point where ranks cannot vote; `during` says where."""
    return AbandonedError(
        f"out of memory while {during}: the ranks start again from the last checkpoint with a smaller micro batch",
        hint="if nothing restarts them, run the same command again with a smaller --batch-size",
        exit_code=ExitCode.BAD_ANSWER,
    )


def _check_used(model: nn.Module) -> None:
    """Raises UnusedError if a parameter has no gradient after a backward in which DDP should have reduced it."""
    if any(parameter.requires_grad and parameter.grad is None for parameter in model.parameters()):
        raise UnusedError(
            "a parameter that had a gradient in every step so far has none in this step, so the ranks start again "
            "from the last checkpoint and exchange gradients after backward from then on",
            hint="if nothing restarts them, run the same command again",
            exit_code=ExitCode.BAD_ANSWER,
        )


_SAME_CODE = "every rank must run the same code and the same config"


@contextmanager
def talking(pulse: Pulse, call: int) -> Iterator[None]:
    """Show a collective in `pulse`, and translate its errors: a rank is gone, or this one has no memory."""
    pulse.enter(call)
    try:
        yield
    except (RuntimeError, MemoryError) as problem:
        if is_out_of_memory(problem):
            raise abandoned() from problem
        # gloo's message begins with a place in its source code and ends with general advice
        text = Pattern(r"^\[[^]]*\] ").sub("", str(problem).splitlines()[0]).partition(". This is")[0]
        raise PeerLostError(
            f"another rank has ended: {text}",
            hint="its message says why; run the same command again to continue from the last checkpoint",
            exit_code=ExitCode.BAD_ANSWER,
        ) from problem
    finally:
        pulse.leave()


def check_versions(ranks: Distributed) -> None:
    """Raises GpudocError if ranks run different versions of gpudoc, torch or Python."""
    mine = {"gpudoc": gpudoc.__version__, "torch": torch.__version__, "Python": platform.python_version()}
    for other, theirs in enumerate(ranks.gather(mine)):
        for name, version in mine.items():
            if theirs[name] != version:
                raise GpudocError(
                    f"rank {ranks.rank} runs {name} {version}, rank {other} runs {theirs[name]}",
                    hint="use the same environment on every node, for example one on a shared file system",
                )
