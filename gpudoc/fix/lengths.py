"""How long a recorded run is: steps within the budget, evaluations and ends of epochs that it reaches. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpudoc.facts.host import cpus_usable
from gpudoc.fix.launches import RecordedRun
from gpudoc.script.look import ScriptLook
from gpudoc.script.outcome import LaunchRecord

_LEAST_RUN_S, _MOST_RUN_S = 4.0, 30.0
_LEAST_COMPARED = 12
_LEAST_DIGESTED = 4
# two launches of each side with some reserve; a whole session needs about twice as many
_LEAST_RUNS, _USUAL_RUNS = 5, 8
# a loader with a smaller share of waiting is left alone
_WAIT_SHARE = 0.05
_CPU_WORKERS = 4


@dataclass(frozen=True, slots=True)
class RecordLength:
    """The steps of a recorded run (None: to the script's own end), and the seconds that they take.

    The batches of the first `digested` steps are digested (None: of all steps); later steps give the speed.
    """

    steps: int | None = None
    seconds: float = _MOST_RUN_S
    digested: int | None = None


def length_of(told: LaunchRecord, look: ScriptLook, evaluated_after: int | None, left_s: float) -> RecordLength:
    """The length that `left_s` allows, across the first evaluation and the end of an epoch if that fits."""
    found = _length_of(told, look, evaluated_after, left_s)
    return replace(found, digested=max(_LEAST_DIGESTED, (found.steps or told.num_steps) // 3))


def _length_of(told: LaunchRecord, look: ScriptLook, evaluated_after: int | None, left_s: float) -> RecordLength:
    run_s = max(_LEAST_RUN_S, min(_MOST_RUN_S, left_s / _USUAL_RUNS - look.start_s))
    affordable = max(_LEAST_COMPARED, int(run_s / max(1e-6, look.step_s)))
    if told.status == 0 and told.num_steps <= affordable:
        return RecordLength(None, run_s)
    epoch = 0 if look.feeding is None or look.feeding.length is None else look.feeding.length
    crossed = int(1.2 * epoch) + 1
    steps = max(_LEAST_COMPARED, min(affordable, 4 * crossed) if epoch and crossed <= affordable else affordable)
    if evaluated_after is not None and told.status != 0:
        # the first step after the evaluation includes it
        until_s = sum(_seconds_of_steps(told)[: evaluated_after + 1])
        if until_s + look.start_s < left_s / _LEAST_RUNS:
            return RecordLength(max(steps, evaluated_after + 1), max(run_s, until_s))
    return RecordLength(steps, run_s)


def workers_needed(look: ScriptLook) -> int | None:
    """How many workers to try: enough for loading to keep up with the rest of a step; None if it already does."""
    loader = look.training
    if loader is None or loader.num_workers or look.wait_share < _WAIT_SHARE:
        return None
    needed = look.wait_share / max(0.05, 1 - look.wait_share)
    cores = int(cpus_usable())
    # on the CPU, workers use the same cores as the step
    return max(1, min(int(needed) + 1, max(_CPU_WORKERS, cores) if look.on_gpu else cores))


def why_no_core(load: float) -> str:
    """The note on workers that gained nothing if other processes already had the cores; else ''."""
    cores = cpus_usable()
    if load <= max(0.5, cores - 1):
        return ""
    return f"no CPU core was free for workers: a load of {load:.1f} on {cores:g} cores when fix began"


def boundaries_of(look: ScriptLook, run: RecordedRun) -> int:
    """The number of ends of epochs that a recorded run reached."""
    length = 0 if look.feeding is None else look.feeding.length or 0
    steps = 0 if run.record is None else run.record.steps
    return steps // length if length else 0


def _seconds_of_steps(told: LaunchRecord) -> list[float]:
    return [seconds for one in told.seen if one.trains for event in one.steps for seconds in event.seconds]
