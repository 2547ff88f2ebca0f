"""What a name or a version alone gives away: a GPU's capability, an older wheel's code, the torchvision of a torch."""

from __future__ import annotations

import functools
import re
from typing import cast

from gpudoc.knowledge.tables import read_list, read_table


def capability_of(name: str) -> tuple[int, int] | None:
    """The compute capability of the GPU with this marketing name; None for a name that the table does not hold."""
    for pattern, capability in _names():
        if pattern.search(name):
            return capability
    return None


def archs_of(cuda: tuple[int, int] | None) -> tuple[str, ...]:
    """The architectures ('sm_80') in PyTorch's own wheels of one CUDA build; empty when the table has no such build."""
    if cuda is None:
        return ()
    for row in read_table("older_wheels.yaml", "builds"):
        first, last = cast(list[int], row["from"]), cast(list[int], row["to"])
        if tuple(first) <= cuda <= tuple(last):
            return tuple(f"sm_{arch}" for arch in cast(list[int], row["archs"]))
    return ()


def vision_for(torch_version: str) -> str | None:
    """The torchvision release ('0.18') that belongs to this torch ('2.3.1'); None when the table does not reach it."""
    match = re.match(r"(\d+)\.(\d+)", torch_version)
    if match is None:
        return None
    major, minor = int(match[1]), int(match[2])
    for row in read_table("older_wheels.yaml", "vision"):
        if row["torch_major"] == major and minor >= cast(int, row["from_minor"]):
            return f"0.{minor + cast(int, row['offset'])}"
    return None


def default_cuda(torch_version: str) -> tuple[int, int] | None:
    """The CUDA of the wheel that PyPI has of this torch for Linux; None when the table does not reach it."""
    match = re.match(r"(\d+\.\d+)", torch_version)
    for row in read_table("older_wheels.yaml", "pypi"):
        if match is not None and row["torch"] == match[1]:
            major, _, minor = str(row["cuda"]).partition(".")
            return int(major), int(minor)
    return None


def has_index(tag: str) -> bool:
    """Whether PyTorch ever published wheels under this CUDA tag ('118', '126')."""
    return tag in read_list("older_wheels.yaml", "indices")


@functools.cache
def _names() -> tuple[tuple[re.Pattern[str], tuple[int, int]], ...]:
    rows = read_table("gpu_names.yaml", "names")
    return tuple(
        (
            re.compile(str(row["name"]), re.IGNORECASE),
            cast(tuple[int, int], tuple(cast(list[int], row["capability"]))),
        )
        for row in rows
    )
