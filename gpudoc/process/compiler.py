"""Checks whether torch.compile has what it needs on this machine, without importing torch."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path

# Triton's code needs Volta (https://github.com/triton-lang/triton#compatibility)
OLDEST_FOR_TRITON = (7, 0)


def can_compile(device: str, capability: tuple[int, int] | None) -> bool:
    """Whether torch.compile has its needs on this device.

    A CPU needs a C++ compiler; a GPU needs Triton, a C compiler and header for its launcher, and the capability.
    """
    if device != "cuda":
        return shutil.which("g++") is not None
    if capability is not None and capability < OLDEST_FOR_TRITON:
        return False
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return bool(compiler) and header.exists() and importlib.util.find_spec("triton") is not None
