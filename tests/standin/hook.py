"""Called by `import torch` in an environment of the stand-in (the entry point group torch.backends)."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path


def load() -> None:
    """Loads the arithmetic, and lets Python's performance counter show the GPU's virtual time."""
    import torch

    torch.backends.cuda.enable_cudnn_sdp(False)  # the stand-in's cuDNN has no plan for attention
    arithmetic = Path(__file__).with_name("libstandin_math.so")
    if not arithmetic.exists():  # PyTorch is too old for it
        return
    torch.ops.load_library(arithmetic)
    if os.environ.get("STANDIN_CLOCK") == "virtual":
        _show_virtual_time(ctypes.CDLL(str(arithmetic)).standin_clock_offset)


def _show_virtual_time(offset_ns: ctypes._NamedFuncPointer) -> None:
    """What the host waits for the GPU passes for time.perf_counter too; what it works in the GPU's place does not."""
    offset_ns.restype = ctypes.c_long
    counter_ns = time.perf_counter_ns
    time.perf_counter_ns = lambda: counter_ns() + offset_ns()
    time.perf_counter = lambda: time.perf_counter_ns() / 1e9
