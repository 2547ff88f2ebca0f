"""All cases in the order in which they run."""

from __future__ import annotations

from dataclasses import replace

from gpudoc.bench.cases import (
    all_reduce,
    cpu_clock,
    cpu_matmul,
    cpu_memory,
    cuda_copies,
    cuda_launch,
    cuda_matmul,
    cuda_memory,
    cuda_peers,
    folder,
    loader,
)
from gpudoc.bench.model import Case

CPU_CASES: tuple[Case, ...] = (cpu_clock.CASE, cpu_memory.CASE, cpu_matmul.CASE, loader.CASE, folder.CASE)
# the time of a host case in a GPU run, as a share of its time in a CPU run
HOST_SHARE = 0.35
CUDA_CASES: tuple[Case, ...] = (
    cuda_launch.CASE,
    cuda_copies.CASE,
    cuda_memory.CASE,
    cuda_matmul.CASE,
    cuda_peers.CASE,
    all_reduce.CASE,
    # the CPU feeds the GPU, so a GPU run measures it too, more briefly
    *(replace(case, share=case.share * HOST_SHARE) for case in CPU_CASES),
)


def cases_for(device: str) -> tuple[Case, ...]:
    """The cases of 'cpu' or of 'cuda:N'."""
    return CPU_CASES if device == "cpu" else CUDA_CASES


def case_names() -> tuple[str, ...]:
    """Every name that --only takes, each once."""
    return tuple(dict.fromkeys(case.name for case in (*CUDA_CASES, *CPU_CASES)))
