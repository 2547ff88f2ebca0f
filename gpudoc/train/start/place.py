"""Where a training runs: in this process, in ranks that it starts, or in a SLURM job that it only writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpudoc.control_characters import escape_line
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.host import num_cpus
from gpudoc.patterns import IGNORECASE, Pattern
from gpudoc.process.arguments import without
from gpudoc.shell import quote_path
from gpudoc.train.request import TrainRequest, go_on
from gpudoc.train.start.launch import OnHang, choose_ranks, end, launch, nodes_here
from gpudoc.train.start.slurm import SlurmJob, sbatch_text
from gpudoc.workload.config import load_config
from gpudoc.writing import write_whole

# messages of gloo and NCCL in the remaining ranks, besides PeerLostError
_LOST = Pattern(
    r"Connection (closed|reset)|NCCL (error|communicator)|gloo/transport|ProcessGroup\w{1,40} .{0,400}abort", IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The result if the training does not run in this process: its exit code, and the message for the user."""

    exit_code: int
    say: str = ""


def elsewhere(request: TrainRequest, *, gpus: str | None, slurm: Path | None) -> Elsewhere | None:
    """Start ranks and wait for them, or write an sbatch file; None if this process itself trains."""
    if slurm is not None:
        return _write_sbatch(request, gpus, slurm)
    if _trains_here(request, gpus):
        return None
    device, num_gpus = _count_gpus(request.device)
    ranks = choose_ranks(gpus, device=request.device if ":" in request.device else device, num_gpus=num_gpus)
    nodes = nodes_here()
    if ranks * nodes.count == 1:
        return None
    arguments = without(request.arguments, "--gpus")
    on_hang = OnHang(then=request.on_hang, go_on=lambda run: go_on(request, run), asks_nccl=device == "cuda")
    return Elsewhere(launch(arguments, ranks=ranks, nodes=nodes, cpus=num_cpus(), on_hang=on_hang))


def needs_torch(request: TrainRequest, *, gpus: str | None, slurm: Path | None) -> bool:
    """Whether this process imports torch: it trains, or counts the GPUs. Ranks on a CPU are started without it.

    GpudocError for mistakes in the config, reported before seconds are spent; ranks report them in their own way.
    """
    if "RANK" not in os.environ:
        load_config(request.model)
    return slurm is None and (request.device != "cpu" or _trains_here(request, gpus))


def _trains_here(request: TrainRequest, gpus: str | None) -> bool:
    return "RANK" in os.environ or (request.device == "cpu" and gpus in (None, "auto", "1"))


def _count_gpus(asked: str) -> tuple[str, int]:
    """The kind of device for `asked`, and the number of GPUs; creates no contexts, which belong to the ranks."""
    if asked == "cpu":
        # then this process never needs torch, whose import takes seconds
        return asked, 0
    import torch

    from gpudoc.doctor.device import choose
    from gpudoc.facts.model import Machine
    from gpudoc.train.start.preflight import with_torch

    device = choose(asked, with_torch(Machine())).required().device
    return device, torch.cuda.device_count() if device == "cuda" else 0


def is_follower() -> bool:
    """Whether another rank prints the output for this one."""
    return os.environ.get("RANK", "0") != "0"


def as_rank(action: Callable[[], int]) -> int:
    """Run `action` and return the status to exit with: a rank that ends on purpose must not look like a crash."""
    if "RANK" not in os.environ:
        return action()
    try:
        return end(action())[0]
    except GpudocError as problem:
        from gpudoc.train.ranks.distributed import AbandonedError, PeerLostError

        is_crash = isinstance(problem, PeerLostError | AbandonedError) or _LOST.search(problem.message) is not None
        status, speaks = end(problem.exit_code, lost_peer=is_crash)
        if not speaks:
            return status
        ended = type(problem)(problem.message, hint=problem.hint, exit_code=ExitCode(status))
        # at the interpreter's end NCCL would wait for a collective that never completes
        ended.is_abrupt = problem.is_abrupt or (is_crash and _waits_for_device())
        raise ended from problem
    except Exception as problem:
        lost = _LOST.search(str(problem)) is not None
        code = ExitCode.BAD_ANSWER if lost else ExitCode.FAULT
        status, speaks = end(code, lost_peer=lost)
        if not speaks:
            return status
        message = "another rank has ended" if lost else f"a fault of gpudoc itself: {type(problem).__name__}"
        raise GpudocError(f"{message}: {str(problem)[:300]}", exit_code=ExitCode(status)) from problem


def _waits_for_device() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _write_sbatch(request: TrainRequest, gpus: str | None, place: Path) -> Elsewhere:
    # a login node has no GPU, but the job's nodes do
    on_gpu = request.device != "cpu"
    ranks = 1 if gpus in (None, "auto") else choose_ranks(gpus, device="cpu", num_gpus=0)
    job = SlurmJob(
        name=load_config(request.model).name,
        arguments=without(request.arguments, "--gpus", "--slurm", flags=("--plain",)),
        python=sys.executable,
        folder=str(Path.cwd()),
        ranks=ranks,
        on_gpu=on_gpu,
        cpus_per_rank=4 if on_gpu else max(1, num_cpus() // ranks),
    )
    write_whole(place, sbatch_text(job), hint="--slurm job.sh", executable=True)
    return Elsewhere(0, f"{escape_line(place)} is written; look it over, then run: sbatch {quote_path(place)}")
