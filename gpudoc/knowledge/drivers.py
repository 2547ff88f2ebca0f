"""NVIDIA drivers and the CUDA versions they carry; None for a driver that the table does not cover."""

from __future__ import annotations

import functools

from gpudoc.frozen import dataclass
from gpudoc.knowledge.tables import read_table
from gpudoc.patterns import Pattern

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """One CUDA version and the driver that came with it on Linux, and on Windows if there is one."""

    cuda: tuple[int, int]
    linux: Version
    windows: Version | None


def parse_version(text: str) -> Version:
    """A version ('550.54.14') as numbers; ValueError if the text does not begin with a number."""
    match = Pattern(r"\d+(?:\.\d+)*").match(text.strip())
    if match is None:
        raise ValueError(f"not a version: {text!r}")
    return tuple(int(part) for part in match[0].split("."))


def cuda_of_driver(driver: str, *, windows: bool = False) -> tuple[int, int] | None:
    """The newest CUDA version of the table that this driver carries (`nvidia-smi`, top right); None when too old."""
    version = parse_version(driver)
    for toolkit in _toolkits():
        needed = toolkit.windows if windows else toolkit.linux
        if needed is not None and version >= needed:
            return toolkit.cuda
    return None


def driver_floor(cuda: tuple[int, int], *, windows: bool = False) -> str | None:
    """The oldest driver on which a program built with this CUDA runs: that of its major version; None when unknown."""
    for row in read_table("cuda_drivers.yaml", "floors"):
        if row["cuda_major"] == cuda[0]:
            return str(row["windows" if windows else "linux"])
    own = next((toolkit for toolkit in _toolkits() if toolkit.cuda == cuda), None)
    needed = None if own is None else own.windows if windows else own.linux
    return None if needed is None else ".".join(f"{part:02d}" if i else str(part) for i, part in enumerate(needed))


def driver_runs_cuda(driver_cuda: tuple[int, int], built_with: tuple[int, int]) -> bool:
    """Whether a driver that carries `driver_cuda` runs a program built with `built_with`.

    From CUDA 11 on, the same major version is enough; before, the driver must be at least as new as the toolkit.
    """
    if built_with[0] >= 11:
        return driver_cuda[0] >= built_with[0]
    return driver_cuda >= built_with


@functools.cache
def _toolkits() -> tuple[Toolkit, ...]:
    rows = read_table("cuda_drivers.yaml", "toolkits")
    return tuple(
        Toolkit(
            cuda=_pair(str(row["cuda"])),
            linux=parse_version(str(row["linux"])),
            windows=parse_version(str(row["windows"])) if "windows" in row else None,
        )
        for row in rows
    )


def _pair(text: str) -> tuple[int, int]:
    major, minor = parse_version(text)[:2]
    return major, minor
