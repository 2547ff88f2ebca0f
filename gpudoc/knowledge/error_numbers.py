"""Finds the cause behind an error number of CUDA or NVML, from the driver itself or from a program's output."""

from __future__ import annotations

from typing import Literal

from gpudoc.knowledge.tables import read_table


def cause_of_error(
    library: Literal["cuda", "nvml"], number: int, how: Literal["asked", "printed"], *, of_gpu: bool = False
) -> tuple[str, float] | None:
    """The cause's id and how surely the number shows it; None for a number that says nothing.

    With `of_gpu`, only causes that are the fault of the one GPU that answered with the number.
    """
    for row in read_table("error_numbers.yaml", library):
        if row["number"] == number and how in row and (not of_gpu or "gpu" in row):
            return str(row["cause"]), float(str(row[how]))
    return None
