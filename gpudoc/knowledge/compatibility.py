"""Facts that follow from a name or version alone: a GPU's capability, an older wheel's code, a torch's torchvision."""

from __future__ import annotations

import functools
from typing import cast

from gpudoc.frozen import dataclass
from gpudoc.knowledge.drivers import driver_runs_cuda
from gpudoc.knowledge.tables import read_list, read_table
from gpudoc.knowledge.wheels import index_url, runs_on, suggest
from gpudoc.patterns import IGNORECASE, Pattern


def capability_of(name: str) -> tuple[int, int] | None:
    """The compute capability of the GPU with this marketing name; None if the table does not have the name."""
    for pattern, capability in _names():
        if pattern.search(name):
            return capability
    return None


def archs_of(cuda: tuple[int, int] | None) -> tuple[str, ...]:
    """The architectures ('sm_80') in PyTorch's own wheels of one CUDA build; empty if the table has no such build."""
    if cuda is None:
        return ()
    for row in read_table("older_wheels.yaml", "builds"):
        first, last = cast(list[int], row["from"]), cast(list[int], row["to"])
        if tuple(first) <= cuda <= tuple(last):
            return tuple(f"sm_{arch}" for arch in cast(list[int], row["archs"]))
    return ()


def vision_for(torch_version: str) -> str | None:
    """The torchvision release ('0.18') that belongs to this torch ('2.3.1'); None if the table does not cover it."""
    match = Pattern(r"(\d+)\.(\d+)").match(torch_version)
    if match is None:
        return None
    major, minor = int(match[1]), int(match[2])
    for row in read_table("older_wheels.yaml", "vision"):
        if row["torch_major"] == major and minor >= cast(int, row["from_minor"]):
            return f"0.{minor + cast(int, row['offset'])}"
    return None


def triton_for(torch_version: str) -> str | None:
    """The Triton release ('3.2') that belongs to this torch ('2.6.0'); None if the table does not cover it."""
    match = Pattern(r"(\d+\.\d+)").match(torch_version)
    for row in read_table("older_wheels.yaml", "triton"):
        if match is not None and row["torch"] == match[1]:
            return str(row["triton"])
    return None


def is_triton_release(version: str) -> bool:
    """Whether some torch belongs to this Triton release ('3.2')."""
    return any(str(row["triton"]) == version for row in read_table("older_wheels.yaml", "triton"))


def default_cuda(torch_version: str) -> tuple[int, int] | None:
    """The CUDA version of this torch's Linux wheel on PyPI; None if the table does not cover it."""
    match = Pattern(r"(\d+\.\d+)").match(torch_version)
    for row in read_table("older_wheels.yaml", "pypi"):
        if match is not None and row["torch"] == match[1]:
            major, _, minor = str(row["cuda"]).partition(".")
            return int(major), int(minor)
    return None


@dataclass(frozen=True, slots=True)
class Wheel:
    """A CUDA build of torch and the arguments of `pip install` that get it."""

    cuda: tuple[int, int]
    arguments: str


def wheel_for(capability: tuple[int, int] | None, driver_cuda: tuple[int, int] | None) -> Wheel | None:
    """The newest build whose code runs on this GPU and whose CUDA this driver runs; None when there is none.

    An unknown GPU counts as one of 8.0; for an unknown driver, it is the oldest build, which most drivers run.
    """
    gpu = capability or (8, 0)
    # for an unknown GPU, the oldest build that is still made: it runs on the most cards and drivers
    newest = suggest(gpu, driver_cuda) if capability is not None else (12, 6)
    if newest is not None and (driver_cuda is None or driver_runs_cuda(driver_cuda, newest)):
        return Wheel(newest, f"torch torchvision torchaudio --index-url {index_url(newest)}")
    for row in read_table("older_wheels.yaml", "last"):
        major, minor = cast(list[int], row["cuda"])
        runs = any(runs_on(code, gpu[0] * 10 + gpu[1]) for code in cast(list[int], row["archs"]))
        if runs and (driver_cuda is None or driver_runs_cuda(driver_cuda, (major, minor))):
            packages = f"torch=={row['torch']} torchvision=={row['vision']}"
            return Wheel((major, minor), f"{packages} --index-url {index_url((major, minor))}")
    return None


def build_for(cuda: tuple[int, int]) -> str | None:
    """The arguments of `pip install` for the last torch built with this CUDA; None if the tables have none."""
    named = f"{cuda[0]}.{cuda[1]}"
    if any(row["cuda"] == named for row in read_table("wheel_archs.yaml", "wheels")):
        return f"torch torchvision torchaudio --index-url {index_url(cuda)}"
    for row in read_table("older_wheels.yaml", "last"):
        if row["cuda"] == list(cuda):
            return f"torch=={row['torch']} torchvision=={row['vision']} --index-url {index_url(cuda)}"
    return None


def has_index(tag: str) -> bool:
    """Whether PyTorch ever published wheels under this CUDA tag ('118', '126')."""
    return tag in read_list("older_wheels.yaml", "indices")


@functools.cache
def _names() -> tuple[tuple[Pattern, tuple[int, int]], ...]:
    rows = read_table("gpu_names.yaml", "names")
    return tuple(
        (
            Pattern(str(row["name"]), IGNORECASE),
            cast(tuple[int, int], tuple(cast(list[int], row["capability"]))),
        )
        for row in rows
    )
