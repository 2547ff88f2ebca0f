"""A measuring process ends with the one that started it, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """End this process when process `parent`, which started it, ends, even by SIGKILL; only Linux can promise that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # the parent may have died before that call, and no signal comes for the past
        if os.getppid() != parent:
            os._exit(1)
