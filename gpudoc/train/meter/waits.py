"""Measures a sharded step's wait for weights and gradients of other ranks, where FSDP2 waits for collectives."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from gpudoc.train.events import Said
from gpudoc.train.meter.meters import Stopwatch

# only waits from this caller count; a copy to the device also makes the stream wait, but is another phase
_OF_TORCH = "torch.distributed."
# the functions that FSDP2 calls, as this torch names them; on a CPU a call returns when the exchange is over
_COLLECTIVES = ("all_gather_into_tensor", "all_gather_single", "reduce_scatter_tensor", "reduce_scatter_single")

Call = Callable[..., Any]


class Waits:
    """The context of a forward and backward: adds the wait of its stream, or on a CPU of its thread, to `watch`.

    FSDP2 has no hook before a layer's wait, so the functions with which it waits are replaced inside the context. An
    exchange hidden by computation costs nothing: only the time between reaching a wait and passing it counts.
    """

    def __init__(self, device: torch.device, watch: Stopwatch) -> None:
        self._watch = watch
        self._device = device
        self._plain: list[tuple[object, str, Call]] = []
        self._num_seen = 0
        self._has_told = False

    def __enter__(self) -> None:
        if self._device.type == "cuda":
            computing = torch.cuda.current_stream(self._device)
            self._replace(torch.cuda.Stream, "wait_event", lambda arguments: arguments[0] == computing)
            return
        for name in _COLLECTIVES:
            if hasattr(dist, name):
                self._replace(dist, name, lambda _: True)

    def __exit__(self, *_: object) -> None:
        while self._plain:
            owner, name, plain = self._plain.pop()
            setattr(owner, name, plain)

    def notes(self) -> list[Said]:
        """The message, given once, if this torch waits in a way that cannot be seen here."""
        if self._num_seen or self._has_told:
            return []
        self._has_told = True
        say = f"torch {torch.__version__} does not show where FSDP2 waits for other ranks: it counts as computing"
        return [Said(f"{say}, but for the end of each backward")]

    def _replace(self, owner: object, name: str, counts: Callable[[tuple[object, ...]], bool]) -> None:
        plain: Call = getattr(owner, name)
        watch = self._watch

        @functools.wraps(plain)
        def timed(*arguments: object, **named: object) -> object:
            caller = str(sys._getframe(1).f_globals.get("__name__"))
            if watch.is_running or not caller.startswith(_OF_TORCH) or not counts(arguments):
                return plain(*arguments, **named)
            self._num_seen += 1
            watch.start()
            try:
                return plain(*arguments, **named)
            finally:
                watch.stop()

        self._plain.append((owner, name, plain))
        setattr(owner, name, timed)
