"""The order of a training step, run by training, by tune's trials and by the plan: a change reaches all three."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpudoc.train.data.draws import Snapshot
from gpudoc.train.meter.meters import Split, clock
from gpudoc.train.ranks.distributed import AbandonedError
from gpudoc.train.ranks.pace import Own
from gpudoc.train.ranks.protocol import OOM, STOP
from gpudoc.train.ranks.pulse import COMPUTING, LOGGING
from gpudoc.train.step.guard import Guard, Moment, Undo
from gpudoc.train.step.schedule import Rates
from gpudoc.train.step.step import Micro, Parts, Stepper
from gpudoc.workload.batch import Batch, shapes


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a step has no samples: a stop came while waiting for them, or there was no memory to read them.

    `seen` is what was being read, `told` the message of the failure.
    """

    flags: int
    seen: str = ""
    told: str = ""


class Outcome(NamedTuple):
    """How a step went: with `flags` 0 its update is made; `seen` and `told` say with which samples it failed."""

    flags: int = 0
    seen: str = ""
    told: str = ""


class LogReading(NamedTuple):
    """What a log point reads: each step's loss (the mean over ranks), the last gradient norm, where the time went.

    `own` is each rank's own part of the time, with several ranks.
    """

    losses: list[float]
    grad_norm: float | None
    split: Split
    own: tuple[Own, ...] = ()


class StepDriver(ABC):
    """What a step needs from its caller. By default there is nothing to stop for, and failures are raised."""

    @abstractmethod
    def fetch(self) -> list[Micro] | Missing:
        """The micro batches of the next step, on the host."""

    def snapshot(self) -> Snapshot | None:
        """The random state of this moment where `fetch` took it already."""
        return None

    def is_stopping(self) -> bool:
        """Whether this rank was asked to stop."""
        return False

    def failed(self, problem: Exception, at: Moment, micros: Sequence[Micro]) -> int:
        """The flags to vote with after a failure; called inside `except`, and raises what cannot be undone."""
        del at, micros
        raise problem

    def abandoned(self, problem: AbandonedError, seen: str) -> None:
        """Called before the error of a rank that cannot go on is raised."""
        del problem, seen


class StepSequence:
    """Runs steps: free gradients, fetch, mark, forward and backward, vote, set the learning rate, update.

    Nothing waits for the device between log points, apart from the first updates (guard.py).
    """

    def __init__(self, stepper: Stepper, rates: Rates, driver: StepDriver, undo: Undo | None = None) -> None:
        parts = stepper.parts
        self.stepper = stepper
        self.meter = stepper.meter
        self.undo = undo or Undo(parts.model, parts.device)
        self.guard = Guard(stepper, driver.failed)
        self._rates = rates
        self._driver = driver
        self._is_alone = parts.ranks.world == 1

    def run(self, step: int) -> Outcome:
        """Step number `step`, from 0. After a stop it is undone; after OOM the caller undoes it."""
        stepper, meter, driver = self.stepper, self.meter, self._driver
        ranks, pulse = stepper.parts.ranks, stepper.parts.ranks.pulse
        pulse.begin(step)
        # before samples are read: while gradients hold their memory, samples would make the heap grow around it
        stepper.free_gradients()
        began, waited = clock(), pulse.waited_s
        found = driver.fetch()
        fetched = clock()
        pulse.read_s += fetched - began - (pulse.waited_s - waited)
        pulse.now(COMPUTING)
        meter.wait(fetched - began)
        self.undo.mark(driver.snapshot())
        flags = found.flags if isinstance(found, Missing) else self._backward(found)
        try:
            if not self._is_alone:
                asked = clock()
                flags = ranks.vote(flags | (STOP if driver.is_stopping() else 0))
                meter.voting += clock() - asked
            if not flags:
                self._rates.set(step)
                flags = self.guard.update()
        except AbandonedError as problem:
            driver.abandoned(problem, _seen(found))
            raise
        if flags & STOP:
            self.undo.back()
            return Outcome(flags)
        done = clock()
        meter.compute += done - fetched
        pulse.own_s += done - began - (pulse.waited_s - waited)
        meter.step_done()
        if flags:
            return Outcome(flags, _seen(found), found.told if isinstance(found, Missing) else "")
        return _DONE

    def read(self) -> LogReading:
        """What was not read since the last call; waits for the device."""
        stepper, ranks = self.stepper, self.stepper.parts.ranks
        ranks.pulse.now(LOGGING)
        losses = stepper.losses.take()
        norm, split = stepper.norm_of_gradients(), self.meter.take()
        own_s, read_s = ranks.pulse.take()
        if ranks.world == 1:
            return LogReading(losses, norm, split)
        if stepper.parts.device.type == "cuda":
            # reading samples counts as far as the device waited for them
            read_s = min(read_s, split.seconds["data_wait"])
            own_s = read_s + split.seconds["transfer"] + split.seconds["compute"]
        if ranks.is_sharded:
            # their forward and backward wait for others' weights: a slow rank makes all look alike there
            own_s = read_s
        # each rank fills in its own place: one exchange for all of it
        parts = [0.0] * (2 * ranks.world)
        parts[2 * ranks.rank : 2 * ranks.rank + 2] = own_s, read_s
        summed = ranks.total([*losses, *parts])
        own = summed[len(losses) :]
        means = [loss / ranks.world for loss in summed[: len(losses)]]
        return LogReading(means, norm, split, tuple(map(Own, own[::2], own[1::2])))

    def _backward(self, micros: list[Micro]) -> int:
        try:
            self.stepper.backward(micros)
        except Exception as problem:
            return self._driver.failed(problem, "backward", micros)
        return 0


def share_out(
    parts: Parts, read: Sequence[tuple[Batch, bool]], missing: Missing | None = None
) -> list[Micro] | Missing:
    """Each batch with its share of the items of all ranks; `read` holds (batch, whether it is weightless).

    Ranks hear here, before a backward whose collectives would wait for it, of one that has no samples.
    """
    ranks = parts.ranks
    if ranks.world == 1:
        if missing is not None:
            return missing
        if len(read) == 1:
            return [Micro(read[0][0], 1.0)]
    items = [0.0 if weightless else float(parts.step.count_items(batch)) for batch, weightless in read]
    flags = missing.flags if missing is not None else 0
    total, stops, shorts = ranks.total([sum(items), float(flags == STOP), float(flags == OOM)])
    if stops or shorts:
        return missing or Missing(STOP if stops else OOM, READING)
    return [Micro(batch, count * ranks.world / total) for (batch, _), count in zip(read, items, strict=True)]


READING = "samples being read"
_DONE = Outcome()


def _seen(found: list[Micro] | Missing) -> str:
    """What the step had in hand, as shapes."""
    return found.seen if isinstance(found, Missing) else shapes(found[0].batch)
