"""Compare the settings found with the default, in turns, and tell whether they are faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from gpudoc.tune.findings import Findings
from gpudoc.tune.model.gain import Gain
from gpudoc.tune.search.session import R, Session
from gpudoc.tune.trial.messages import End, TrialRequest

Side = Literal["joint", "default"]
Ask = Callable[[Side, int], TrialRequest | None]


def compare_in_turns(session: Session[R], found: Findings, turns: Sequence[tuple[Side, int]], ask: Ask) -> None:
    """Run the trials that `ask` returns, until it returns None, the time is over, or the settings found fail."""
    for side, turn in turns:
        request = ask(side, turn)
        if request is None:
            return
        more = f", once more: turn {turn + 1}" if turn else ""
        what = "the settings found" if side == "joint" else "the default"
        trial = session.run(request, f"comparing with real data: {what}{more}")
        if trial.end is End.TIME_UP:
            return
        (found.joints if side == "joint" else found.defaults).append(trial)
        if found.failed_with_data:
            return


def loses(gain: Gain, *, is_sure: bool) -> bool:
    """Whether the settings found are slower or, with `is_sure`, not faster by more than the trials vary."""
    return gain.ratio is not None and (gain.ratio.middle < 1 or (is_sure and gain.ratio.low <= 1))
