"""Signs of life of a trial while torch compiles, which is silent for minutes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gpudoc.process.stacks import little_stacks
from gpudoc.tune.trial.wire import Emit, LifeSign

_PERIOD_S = 5.0


def beat_while_compiling(emit: Emit, is_over: Callable[[], bool], period_s: float = _PERIOD_S) -> None:
    """From now on, emit a beat every few seconds while torch compiles in this process, until `is_over`."""
    from torch._dynamo import callback

    compiling = threading.Event()
    depth = 0

    # torch 2.6 calls these without arguments and also around a compilation inside another
    def start(*_: object) -> None:
        nonlocal depth
        depth += 1
        compiling.set()

    def end(*_: object) -> None:
        nonlocal depth
        depth -= 1
        if depth == 0:
            compiling.clear()

    def beat() -> None:
        while compiling.wait() and not is_over():
            emit(LifeSign())
            time.sleep(period_s)

    callback.on_compile_start(start)
    callback.on_compile_end(end)
    with little_stacks():
        threading.Thread(target=beat, daemon=True).start()
