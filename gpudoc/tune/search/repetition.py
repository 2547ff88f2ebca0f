"""Measure disturbed trials again: one rule for the trials of a config and the launches of a script."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpudoc.tune.model.noise import disturbance_of
from gpudoc.tune.search.choose import is_faster
from gpudoc.tune.search.heat import Read, watched
from gpudoc.tune.trial.messages import RUNS, Trial, TrialRequest

# how often a trial is measured again, and the share of the budget for all repetitions
_MOST, _SHARE = 2, 0.15


@dataclass(slots=True)
class Repetition:
    """The time for repetitions so far, and whether the machine stayed busy during them.

    `readers` read the counters of the GPUs that the trials run on.
    """

    readers: Sequence[Read] = ()
    spent_s: float = 0.0
    _is_busy: bool = False

    def least_disturbed(
        self,
        run: Callable[[], Trial],
        *,
        budget_s: float,
        say: Callable[[str], None],
        left_s: Callable[[], float] = lambda: math.inf,
    ) -> Trial:
        """The trial of `run`, which runs up to three times while other work disturbs it and the budget allows.

        It is the least disturbed one, with the seconds of all runs. If the machine stays busy, later trials run only
        once.
        """
        best = watched(run, self.readers)
        seconds, runs = best.seconds, 1
        for _ in range(_MOST):
            is_paid = self.spent_s + best.seconds <= _SHARE * budget_s and best.seconds <= left_s()
            if not best.fits or not best.is_disturbed or self._is_busy or not is_paid:
                break
            say(f"  {disturbance_of([best])}: measured again")
            again = watched(run, self.readers)
            seconds, runs = seconds + again.seconds, runs + 1
            self.spent_s += again.seconds
            if again.fits:
                best = min(best, again, key=lambda trial: trial.disturbance)
        self._is_busy = self._is_busy or (best.fits and best.is_disturbed)
        measured = best.measured if runs == 1 else {**best.measured, RUNS: float(runs)}
        return best.model_copy(update={"seconds": round(seconds, 3), "measured": measured})


def wins(other: Trial, plain: Trial, run: Callable[[TrialRequest], Trial]) -> bool:
    """Whether `other` is surely faster than `plain`, also after `run` has measured `plain` once more.

    A disturbance that slowed `plain`, seen or not, may have ended before `other` began. If one of them was disturbed,
    `other` must be faster in a second run, too.
    """
    after, before = [other], [plain]
    if plain.fits and is_faster(after, before):
        before.append(run(_once_more(plain.request)))
        if not before[-1].fits:
            return False
        if any(trial.is_disturbed for trial in (*before, *after)):
            after.append(run(_once_more(other.request)))
    return is_faster(after, before)


def _once_more(request: TrialRequest) -> TrialRequest:
    return request.model_copy(update={"repeat": request.repeat + 1})
