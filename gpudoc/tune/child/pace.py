"""Times steps in blocks between two waits for the device, since training does not wait for each step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from gpudoc.train.ranks.protocol import Ranks
from gpudoc.tune.child.training import Trainee
from gpudoc.tune.trial.messages import WAKE_S
from gpudoc.tune.trial.wire import Emit, LifeSign

_BLOCK_S = 0.12
_MOST_STEPS = 100
_BEAT_S = 1.0


def steps_per_block(step_s: float) -> int:
    """Steps per block, the same on every rank: long enough that the clock and one stray wait matter little."""
    return min(_MOST_STEPS, math.ceil(_BLOCK_S / max(step_s, 1e-6)))


@dataclass(slots=True, kw_only=True)
class StepPace:
    """Runs and times steps of one rank's trainee, and sends a sign of life now and then."""

    trainee: Trainee
    ranks: Ranks
    emit: Emit
    _told_at: float = field(default=0.0, init=False)
    _is_asleep: bool = field(init=False)

    def __post_init__(self) -> None:
        self._is_asleep = self.trainee.device.type == "cuda"

    def time(self, step: Callable[[], None], count: int) -> float:
        """Seconds per step over `count` steps, of the slowest rank; all start together."""
        self.ranks.barrier()
        start = time.perf_counter()
        self.run(step, count)
        taken = (time.perf_counter() - start) / count
        return max(self.ranks.gather(taken))

    def warm_up(self, step: Callable[[], None], least: int) -> float:
        """Seconds of the last of `least` steps; before the first timing on a GPU, more steps run until it is awake."""
        taken = [self.time(step, 1) for _ in range(least)]
        while self._is_asleep and sum(taken) < WAKE_S:
            taken.append(self.time(step, 1))
        self._is_asleep = False
        return taken[-1]

    def run(self, step: Callable[[], None], count: int) -> None:
        """Run `count` steps, and wait for the device after the last."""
        for _ in range(count):
            step()
            if time.monotonic() - self._told_at > _BEAT_S:
                self._told_at = time.monotonic()
                self.emit(LifeSign())
        if self.trainee.device.type == "cuda":
            torch.cuda.synchronize(self.trainee.device)
        self.trainee.drain()
