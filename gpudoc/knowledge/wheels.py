"""Which compiled code runs on which GPU, and which of PyTorch's wheels fits a GPU and its driver."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Literal, cast

from gpudoc.knowledge.drivers import driver_runs_cuda, parse_version
from gpudoc.knowledge.tables import Row, read_table
from gpudoc.patterns import Pattern

Fit = Literal["runs", "too_new", "too_old"]


def fit(capability: tuple[int, int], arch_list: Iterable[str]) -> Fit:
    """Whether a build with `arch_list` (`torch.cuda.get_arch_list()`) has code for the GPU.

    'too_new' and 'too_old' describe the GPU, not the build.
    Code for 8.6 runs on 8.9, but not on 8.0 or 9.0; `compute_90` is text that a driver compiles for any later GPU.
    """
    device = capability[0] * 10 + capability[1]
    archs = tuple(arch_list)
    codes = [code for arch in archs if (code := _number(arch, "sm_")) is not None]
    texts = [code for arch in archs if (code := _number(arch, "compute_")) is not None]
    exact = [arch for arch in archs if Pattern(rf"sm_{device}[af]?").fullmatch(arch)]
    if exact or any(runs_on(code, device) for code in codes) or any(code <= device for code in texts):
        return "runs"
    return "too_new" if all(code < device for code in (*codes, *texts)) else "too_old"


def runs_on(code: int, device: int) -> bool:
    """Whether machine code for compute capability `code` (86) runs on a GPU of `device` (89)."""
    row = _exceptions().get(code, {})
    if "only_on" in row:
        return device in cast(list[int], row["only_on"])
    return device // 10 == code // 10 and device >= code and device not in cast(list[int], row.get("not_on", []))


def suggest(
    capability: tuple[int, int], driver_cuda: tuple[int, int] | None, architecture: str = "x86_64"
) -> tuple[int, int] | None:
    """The newest CUDA build of PyTorch's current wheels for this GPU that its driver runs; None when none does.

    The oldest such build if the driver is unknown: most drivers run it.
    """
    device = capability[0] * 10 + capability[1]
    column = "aarch64" if architecture in ("aarch64", "arm64") else "x86_64"
    rows = read_table("wheel_archs.yaml", "wheels")
    for row in rows if driver_cuda is None else reversed(rows):
        version = parse_version(str(row["cuda"]))
        cuda = (version[0], version[1])
        fits = any(runs_on(code, device) for code in cast(list[int], row[column]))
        if fits and (driver_cuda is None or driver_runs_cuda(driver_cuda, cuda)):
            return cuda
    return None


def index_url(cuda: tuple[int, int]) -> str:
    """The wheel index of one CUDA build, for pip's --index-url."""
    from gpudoc.knowledge.tables import read_text

    return f"{read_text('wheel_archs.yaml', 'index')}/cu{cuda[0]}{cuda[1]}"


def _number(arch: str, prefix: str) -> int | None:
    match = Pattern(rf"{prefix}(\d+)").fullmatch(arch)
    return int(match[1]) if match else None


@functools.cache
def _exceptions() -> dict[int, Row]:
    return {int(str(row["code"])): row for row in read_table("wheel_archs.yaml", "exceptions")}
