"""The order of a training step, shared by training, tune's trials and the plan: a change affects all three.

`Undo` keeps the state before a step, so that the step can run again. In the first updates an optimizer allocates its
state: `Guard` tries that before it updates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import is_not
from typing import Literal, NamedTuple

import torch
from torch import nn

from gpudoc.process.shortage import is_out_of_memory
from gpudoc.train.data.draws import Generators, Snapshot
from gpudoc.train.meter.meters import Split, clock
from gpudoc.train.ranks.distributed import AbandonedError
from gpudoc.train.ranks.pace import Own
from gpudoc.train.ranks.protocol import OOM, STOP
from gpudoc.train.ranks.pulse import COMPUTING, LOGGING
from gpudoc.train.step.schedule import Rates
from gpudoc.train.step.step import Micro, Parts, Stepper
from gpudoc.workload.batch import Batch, shapes

# "torn": an update that may have left the weights half updated
Moment = Literal["backward", "state", "update", "torn"]
# called inside `except` with the moment of the failure and the micro batches; returns the flags to vote with, or raises
Judge = Callable[[Exception, Moment, Sequence[Micro]], int]

_PROBATION_STEPS = 2


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a step has no samples: a stop came while it waited for them, or there was no memory to read them.

    `seen` names the samples that were being read, `told` is the message of the failure.
    """

    flags: int
    seen: str = ""
    told: str = ""


class Outcome(NamedTuple):
    """The result of a step: if `flags` is 0 the update is done; `seen` and `told` say with which samples it failed."""

    flags: int = 0
    seen: str = ""
    told: str = ""


class LogReading(NamedTuple):
    """The values of a log point: each step's loss (the mean over ranks), the last gradient norm, the split of the time.

    With several ranks, `own` is each rank's own part of the time.
    """

    losses: list[float]
    grad_norm: float | None
    split: Split
    own: tuple[Own, ...] = ()


class StepDriver(ABC):
    """The callbacks that a step needs from its caller. By default no stop is asked for, and failures are raised."""

    @abstractmethod
    def fetch(self) -> list[Micro] | Missing:
        """The micro batches of the next step, on the host."""

    def snapshot(self) -> Snapshot | None:
        """The random state of this moment if `fetch` already took it, else None."""
        return None

    def is_stopping(self) -> bool:
        """Whether this rank was asked to stop."""
        return False

    def failed(self, problem: Exception, at: Moment, micros: Sequence[Micro]) -> int:
        """The flags to vote with after a failure; called inside `except`. Raises if the failure cannot be undone."""
        del at, micros
        raise problem

    def abandoned(self, problem: AbandonedError, seen: str) -> None:
        """Called before the error of a rank that cannot go on is raised."""
        del problem, seen


class Guard:
    """Lets the optimizer step. Before each of the first updates it tries on all ranks whether the new state fits."""

    def __init__(self, stepper: Stepper, judge: Judge) -> None:
        self._stepper = stepper
        self._judge = judge
        self._guarded = _PROBATION_STEPS

    def restart(self) -> None:
        """Guard the next updates again: memory was short."""
        self._guarded = _PROBATION_STEPS

    def release(self) -> None:
        """Guard no further update."""
        self._guarded = 0

    def update(self) -> int:
        """Exchange gradients and update. Returns flags if memory ran out before anything changed.

        The step can be repeated after a failure that changed nothing. `Stepper.is_updating` stays true after a failure
        that may have left the weights half updated.
        """
        stepper = self._stepper
        stepper.exchange()
        fresh: list[nn.Parameter] = []
        before: list[int] | None = None
        if self._guarded:
            # an update cannot be undone, so all ranks first learn whether the state fits everywhere
            flags = stepper.parts.ranks.vote(self._try_state())
            if flags:
                return flags
            fresh, before = stepper.without_state(), self._versions()
        try:
            stepper.apply()
        except Exception as problem:
            if is_out_of_memory(problem):
                self._take_back(fresh, before)
            return self._judge(problem, "torn" if stepper.is_updating else "update", ())
        if self._guarded:
            if stepper.was_skipped():
                # SGD's fused kernel was not allowed to write the new momentum, so it is uninitialised memory
                stepper.drop_state(fresh)
            else:
                self._guarded -= 1
        return 0

    def _try_state(self) -> int:
        try:
            self._stepper.try_state()
        except Exception as problem:
            return self._judge(problem, "state", ())
        return 0

    def _take_back(self, fresh: list[nn.Parameter], before: list[int] | None) -> None:
        stepper = self._stepper
        stepper.drop_state(fresh)
        if not stepper.is_updating or (before is not None and before == self._versions()):
            stepper.forget_update()

    def _versions(self) -> list[int] | None:
        """Counters that show whether an update has begun; None for a fused optimizer, whose kernels do not count."""
        stepper = self._stepper
        if stepper.is_fused:
            return None
        states = stepper.parts.optimizer.state.values()
        held = [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
        return [tensor._version for tensor in (*stepper.parameters, *held)]


class Undo:
    """Keeps the random state and the buffers of the last step boundary; `back` restores them and drops gradients.

    Every buffer is copied at every boundary, since changes cannot be detected: batch norm's kernels, `.data` and an
    assignment in the forward pass all leave a tensor's version unchanged.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._generators = Generators(device)
        self._parameters = list(model.parameters())
        self._places = [(module._buffers, name) for module in model.modules() for name in module._buffers]
        self._buffers: list[torch.Tensor | None] = [None] * len(self._places)
        # pairs of copies and buffers of one type; one kernel copies a whole group
        self._groups: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []
        self.mark()

    def mark(self, snapshot: Snapshot | None = None) -> None:
        """Remember this step boundary; nothing waits for the device.

        `snapshot` is the random state if the caller already took it and nothing was drawn since.
        """
        buffers = [owner.get(name) for owner, name in self._places]
        if any(map(is_not, buffers, self._buffers)):
            self._buffers = buffers
            self._groups = _grouped(buffers)
        for copies, originals in self._groups:
            torch._foreach_copy_(copies, originals)
        self.snapshot = snapshot or self._generators.snapshot()

    def back(self) -> None:
        """Return to the marked boundary: random state, buffers, no gradients."""
        for (owner, name), buffer in zip(self._places, self._buffers, strict=True):
            owner[name] = buffer
        for copies, originals in self._groups:
            torch._foreach_copy_(originals, copies)
        for parameter in self._parameters:
            parameter.grad = None
        self._generators.restore(self.snapshot)


class StepSequence:
    """Runs steps: free gradients, fetch, mark, forward and backward, vote, set the learning rate, update.

    Between log points only the first updates (`Guard`) wait for the device.
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
        """Run step number `step`, from 0. After a stop this method undoes it; after OOM the caller must."""
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
        """The values since the last call; waits for the device."""
        stepper, ranks = self.stepper, self.stepper.parts.ranks
        ranks.pulse.now(LOGGING)
        losses = stepper.losses.take()
        norm, split = stepper.norm_of_gradients(), self.meter.take()
        own_s, read_s = ranks.pulse.take()
        if ranks.world == 1:
            return LogReading(losses, norm, split)
        if stepper.parts.device.type == "cuda":
            # reading samples counts only for the time that the device waited for them
            read_s = min(read_s, split.seconds["data_wait"])
            own_s = read_s + split.seconds["transfer"] + split.seconds["compute"]
        if ranks.is_sharded:
            # forward and backward wait for the weights of other ranks, so one slow rank makes all ranks look slow
            own_s = read_s
        # each rank fills its own place, so one exchange is enough
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

    Ranks learn here if one of them has no samples; otherwise the collectives of backward would wait for that rank.
    """
    ranks = parts.ranks
    is_alone = ranks.world == 1
    if is_alone and missing is not None:
        return missing
    if is_alone and len(read) == 1:
        return [Micro(read[0][0], 1.0)]
    items = [0.0 if weightless else float(parts.step.count_items(batch)) for batch, weightless in read]
    total = sum(items)
    if not is_alone:
        flags = missing.flags if missing is not None else 0
        total, stops, shorts = ranks.total([total, float(flags == STOP), float(flags == OOM)])
        if stops or shorts:
            return missing or Missing(STOP if stops else OOM, READING)
    return [Micro(batch, count * ranks.world / total) for (batch, _), count in zip(read, items, strict=True)]


READING = "samples being read"
_DONE = Outcome()


def _seen(found: list[Micro] | Missing) -> str:
    """The samples of the step, as shapes."""
    return found.seen if isinstance(found, Missing) else shapes(found[0].batch)


def _grouped(buffers: list[torch.Tensor | None]) -> list[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    groups: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    for buffer in buffers:
        if buffer is not None:
            groups.setdefault((buffer.device, buffer.dtype), []).append(buffer.detach())
    return [([torch.empty_like(one) for one in group], group) for group in groups.values()]
