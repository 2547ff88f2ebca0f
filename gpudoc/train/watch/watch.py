"""Watches a run from outside its steps: reports when it no longer makes progress, and ends it if requested."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from gpudoc.errors import GpudocError
from gpudoc.train.events import Hung
from gpudoc.train.ranks.pulse import BUILDING, ENDED, SAVING, Beat
from gpudoc.train.watch.hang import Stand, compiles, judge
from gpudoc.units import format_seconds

REPORT, END = "report", "end"
# a hang: no progress for the longest of this time, this many usual steps, and twice an earlier standstill
FLOOR_S = 30.0
TIMES = 10.0
# the time allowed for a first step (it compiles and starts loader workers), a checkpoint, and building
FIRST_S = 300.0
_PATIENT = (BUILDING, SAVING)
# a run is ended if it stands for this many times as long as it took to be reported
END_TIMES = 4.0
LOOK_S = 1.0
_USUAL_STEPS = 100


def check(on_hang: str) -> str:
    """The value of --on-hang; GpudocError if it is unknown."""
    if on_hang not in (REPORT, END):
        raise GpudocError(f"--on-hang {on_hang}: unknown", hint=f"--on-hang {REPORT}, or --on-hang {END}")
    return on_hang


def first_step_s(stands: Sequence[Stand]) -> float:
    """How long ranks may stand: FIRST_S if one compiles a model, else 0."""
    return FIRST_S if compiles(stands) else 0.0


@dataclass(kw_only=True)
class RankWatch:
    """Looks at the ranks' signs of life about once a second, and judges them if they have stood still too long.

    `beats` returns where the ranks are, `stands` the same with their stacks, `seen` the report of NCCL's flight
    recorder; `record` takes a hang that is over. `patience_s` is the least time that ranks with these stacks may stand.
    """

    beats: Callable[[], Sequence[Beat]]
    stands: Callable[[Sequence[Beat]], Sequence[Stand]]
    say: Callable[[str], None]
    record: Callable[[Hung], None]
    seen: Callable[[], Sequence[str]] = tuple
    patience_s: Callable[[Sequence[Stand]], float] = first_step_s
    on_hang: str = REPORT
    clock: Callable[[], float] = time.monotonic
    hung: Hung | None = field(default=None, init=False)
    _last: Sequence[Beat] = field(default=(), init=False)
    _since: float = field(init=False)
    _looked: float = field(default=0.0, init=False)
    _step: int | None = field(default=None, init=False)
    _step_since: float | None = field(default=None, init=False)
    _steps_s: deque[float] = field(default_factory=lambda: deque(maxlen=_USUAL_STEPS), init=False)
    _stood_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._since = self.clock()

    def look(self) -> bool:
        """Look once; returns whether the run must be ended."""
        now = self.clock()
        beats = self._alive()
        if beats != self._last:
            self._moved(beats, now)
            return False
        still_s, limit_s = now - self._since, self._limit_s(beats)
        if not beats or still_s < limit_s:
            return False
        if now - self._looked < limit_s / 4:
            return False
        if self.hung is None:
            self._looked = now
            self._judge(beats, still_s)
        elif self.on_hang == END and still_s >= END_TIMES * self.hung.still_s:
            self._looked = now
            # by now it may be in work that shows no sign of life
            return still_s >= self.patience_s(self.stands(beats)) and self._alive() == beats
        return False

    @property
    def usual_s(self) -> float | None:
        """The usual seconds of a step; None until two steps were seen."""
        return median(self._steps_s) if self._steps_s else None

    def _alive(self) -> list[Beat]:
        return [beat for beat in self.beats() if beat.doing != ENDED]

    def _judge(self, beats: Sequence[Beat], still_s: float) -> None:
        stands = self.stands(beats)
        if still_s < self.patience_s(stands):
            return
        hung = judge(stands, still_s, self.usual_s, self.seen())
        if self._alive() != beats:
            # it moved on during the look
            return
        self.hung = hung
        what = "gpudoc keeps waiting; --on-hang end would end the run"
        if self.on_hang == END:
            what = f"--on-hang end: the run ends when it stands for {format_seconds(END_TIMES * still_s)}"
        self.say("\n".join([hung.say, *(f"  {line}" for line in hung.stacks), f"  {what}"]))

    def _moved(self, beats: Sequence[Beat], now: float) -> None:
        stood_s = now - self._since
        if self.hung is not None:
            self.say(f"moving again after {format_seconds(stood_s)}")
            self.record(replace(self.hung, still_s=stood_s))
            self.hung = None
        if {beat.pid for beat in beats} != {beat.pid for beat in self._last}:
            # other processes: their first step is a first step again
            self._step = self._step_since = None
            self._steps_s.clear()
            self._stood_s = 0.0
        elif self._steps_s and not any(beat.doing in _PATIENT for beat in self._last):
            self._stood_s = max(self._stood_s, stood_s)
        step = min((beat.step for beat in beats if beat.doing != BUILDING), default=None)
        if step is not None and step != self._step:
            if self._step is not None and step > self._step and self._step_since is not None:
                self._steps_s.append((now - self._step_since) / (step - self._step))
            # the first observed step takes longer than others and is not counted
            self._step_since = None if self._step is None else now
            self._step = step
        self._last, self._since = list(beats), now

    def _limit_s(self, beats: Sequence[Beat]) -> float:
        usual_s = self.usual_s
        if usual_s is None or any(beat.doing in _PATIENT for beat in beats):
            return FIRST_S
        return max(FLOOR_S, TIMES * usual_s, min(2 * self._stood_s, FIRST_S))
