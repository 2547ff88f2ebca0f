"""All cases in the order in which they run."""

from __future__ import annotations

from gpudoc.bench.cases import cpu_clock, cpu_matmul, cpu_memory, folder, loader
from gpudoc.bench.model import Case

CPU_CASES: tuple[Case, ...] = (cpu_clock.CASE, cpu_memory.CASE, cpu_matmul.CASE, loader.CASE, folder.CASE)
CUDA_CASES: tuple[Case, ...] = ()


def cases_for(device: str) -> tuple[Case, ...]:
    """The cases of 'cpu' or of 'cuda:N'."""
    return CPU_CASES if device == "cpu" else CUDA_CASES


def case_names() -> tuple[str, ...]:
    """Every name that --only takes, each once."""
    return tuple(dict.fromkeys(case.name for case in (*CUDA_CASES, *CPU_CASES)))
