"""Which cause the number of an error of CUDA or NVML points to, from the driver itself or in a program's output."""

from __future__ import annotations

from typing import Literal

from gpudoc.knowledge.tables import read_table


def cause_of_error(
    library: Literal["cuda", "nvml"], number: int, how: Literal["asked", "printed"], *, of_gpu: bool = False
) -> tuple[str, float] | None:
    """The cause's id and how sure the number is of it; None for one that says nothing.

    With `of_gpu` only what is the fault of the one GPU that answered it.
    """
    for row in read_table("error_numbers.yaml", library):
        if row["number"] == number and how in row and (not of_gpu or "gpu" in row):
            return str(row["cause"]), float(str(row[how]))
    return None
