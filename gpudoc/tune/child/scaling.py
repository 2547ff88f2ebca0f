"""One rank's part in measuring how training scales: train's whole step, and the step without one part after another.

The leg `loaded` is the whole step, as in training. `exchanged` has its data ready, `computed` also leaves out the
exchange of gradients, and `resident` also the H2D copy; `small` is `computed` at a quarter of the batch. The difference
between a leg and the next is the exposed time of the part left out, so that the differences add up to the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from gpudoc.profile.model import Loader
from gpudoc.train.data.feed import Feeds, LoaderSettings
from gpudoc.train.data.order import Order
from gpudoc.train.data.reader import Reader
from gpudoc.train.ranks.protocol import STOP, Ranks
from gpudoc.train.stop import Stop
from gpudoc.tune.child.pace import StepPace, steps_per_block
from gpudoc.tune.child.samples import Samples
from gpudoc.tune.child.training import Trainee
from gpudoc.tune.trial.messages import TrialRequest
from gpudoc.tune.trial.wire import Emit
from gpudoc.workload.batch import Batch, map_tensors, to_device
from gpudoc.workload.build import Workload

Legs = dict[str, tuple[float, ...]]
_SLOW_STEP_S = 0.5
_LEAST_BLOCKS, _MOST_BLOCKS = 3, 40
# the loader's blocks run between two halves of the other legs, so that a change of the machine's pace affects both
_LOADER_SHARE = 0.4
_ENDLESS = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStand:
    """The setup of one rank's measurement: its trainee and samples, the request, and whether time is over."""

    workload: Workload
    samples: Samples
    trainee: Trainee
    ranks: Ranks
    request: TrialRequest
    emit: Emit
    is_over: Callable[[], bool]


def measure_legs(stand: RankStand) -> Legs:
    """Seconds per step of each leg, one number per block of steps, of the slowest rank."""
    return _Measurement(stand).run()


def ready(samples: Samples, batch: int, *, pinned: bool) -> Batch:
    """A batch of typical samples as a loader yields it, in pinned memory if asked."""
    made = samples.typical(batch)
    return map_tensors(made, torch.Tensor.pin_memory) if pinned else made


class _Measurement:
    def __init__(self, stand: RankStand) -> None:
        self._stand = stand
        self._batch = stand.request.batches[0]
        self._feed = stand.request.feed or Loader()
        self._device = stand.trainee.device
        self._legs: dict[str, list[float]] = {}
        self._num_steps = 1
        self._pace = StepPace(trainee=stand.trainee, ranks=stand.ranks, emit=stand.emit)

    def run(self) -> Legs:
        self._stand.trainee.end_probation()
        steps = self._steps()
        # the optimizer's state comes with the first step of all
        self._pace.run(steps["computed"], 1)
        self._num_steps = steps_per_block(max(self._warm(step) for step in steps.values()))
        seconds = self._stand.request.seconds_per_batch
        self._take_turns(steps, (1 - _LOADER_SHARE) / 2 * seconds)
        self._legs["loaded"] = self._run_loaded(_LOADER_SHARE * seconds)
        self._take_turns(steps, (1 - _LOADER_SHARE) / 2 * seconds)
        return {name: tuple(round(value, 9) for value in values) for name, values in self._legs.items()}

    def _steps(self) -> dict[str, Callable[[], None]]:
        """The legs whose data is ready, each as one step."""
        trainee = self._stand.trainee
        whole = self._ready(self._batch)
        found: dict[str, Callable[[], None]] = {"computed": lambda: trainee.step([whole], exchange=False)}
        if self._stand.ranks.world > 1:
            found["exchanged"] = lambda: trainee.step([whole])
        if self._device.type == "cuda":
            resident = to_device(whole, self._device, channels_last=self._stand.request.variant.channels_last)
            found["resident"] = lambda: trainee.step([resident], exchange=False)
        if self._stand.ranks.world == 1 and self._batch > 1:
            less = self._ready(max(1, self._batch // 4))
            found["small"] = lambda: trainee.step([less], exchange=False)
        return found

    def _ready(self, batch: int) -> Batch:
        return ready(self._stand.samples, batch, pinned=self._feed.pin_memory and self._device.type == "cuda")

    def _warm(self, step: Callable[[], None], count: int = 1) -> float:
        """Seconds per step after one warm-up step; a slow first step is the result itself, without more warm-up."""
        first = self._pace.time(step, 1)
        return first if first > _SLOW_STEP_S else self._pace.time(step, max(2, count))

    def _take_turns(self, steps: Mapping[str, Callable[[], None]], seconds: float) -> None:
        """Blocks of all legs in turns, forward and then backward, until time is up."""
        started = time.monotonic()
        names = list(steps)
        for number in range(_MOST_BLOCKS):
            if number and self._agreed(number >= _LEAST_BLOCKS - 1 and time.monotonic() - started >= seconds):
                return
            for name in names if number % 2 == 0 else names[::-1]:
                self._legs.setdefault(name, []).append(self._pace.time(steps[name], self._num_steps))

    def _run_loaded(self, seconds: float) -> list[float]:
        """Time blocks of steps fed by train's own loader; batches ready before the clock started do not count."""
        world, count = self._stand.ranks.world, self._stand.workload.num_samples
        config = self._stand.workload.config.train
        order = Order(
            num_samples=count,
            global_batch=min(count, self._batch * world),
            micro_batch=self._batch,
            seed=config.seed,
            rank=self._stand.ranks.rank,
            world=world,
        )
        reader = Reader(self._stand.workload.dataset, self._stand.workload.collate, config.seed)
        settings = LoaderSettings(
            num_workers=self._feed.num_workers,
            prefetch_factor=self._feed.prefetch_factor,
            pin_memory=self._feed.pin_memory and self._device.type == "cuda",
        )
        feed = Feeds(reader, settings, Stop()).open(order, 0, _ENDLESS)
        try:
            return self._blocks_of(_Loaded(order, feed.take, self._stand.trainee), seconds)
        finally:
            feed.close()

    def _blocks_of(self, loaded: _Loaded, seconds: float) -> list[float]:
        ahead = self._feed.num_workers * self._feed.prefetch_factor
        self._pace.run(loaded.step, ahead)
        # workers hand over their ready batches in a burst and then the step waits: a block holds a whole burst
        steps = max(1, ahead, steps_per_block(self._warm(loaded.step, ahead)))
        started = time.monotonic()
        blocks: list[float] = []
        while len(blocks) < _MOST_BLOCKS:
            if blocks and self._agreed(len(blocks) >= _LEAST_BLOCKS and time.monotonic() - started >= seconds):
                break
            loaded.samples = 0
            taken = self._pace.time(loaded.step, steps) * steps
            # the last step of an epoch is smaller
            blocks.append(taken * self._batch * self._stand.ranks.world / loaded.samples)
        return blocks

    def _agreed(self, mine: bool) -> bool:
        return bool(self._stand.ranks.vote(STOP if mine or self._stand.is_over() else 0))


class _Loaded:
    """Steps in train's order of samples; counts the samples that all ranks consumed."""

    def __init__(self, order: Order, take: Callable[..., Batch | None], trainee: Trainee) -> None:
        self._order = order
        self._take = take
        self._trainee = trainee
        self._number = 0
        self.samples = 0

    def step(self) -> None:
        batches = [self._take(chunk) for chunk in self._order.chunks(self._number)]
        self.samples += self._order.samples_in(self._number)
        self._number += 1
        self._trainee.step([batch for batch in batches if batch is not None])
