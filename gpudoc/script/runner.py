"""Launches of a user's command as trials of a search: the time of each, and whether the batch reaches the loader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.script.command import Command
from gpudoc.script.look import ScriptLook
from gpudoc.script.trial import WARM_STEPS, Launches
from gpudoc.stats import median
from gpudoc.tune.search.session import Session
from gpudoc.tune.trial.deadline import Deadline
from gpudoc.tune.trial.messages import RUNS, End, Trial, TrialRequest, Variant

# the time to end a launch with all its processes and to write the findings, on a busy machine
_ENDING_S = 3.0


class NoLeverError(GpudocError):
    """The script does not let its batch be set from outside."""


@dataclass(slots=True, kw_only=True)
class CommandRunner:
    """Runs the trials of one command; satisfies `tune.search.runner.Runner`.

    `look` is the look at the original script, `own` the launch behind it, `reference` its own batch per rank.
    """

    launches: Launches
    command: Command
    look: ScriptLook
    own: Trial | None = None
    reference: int = 1
    limit_bytes: int | None = None
    fit_steps: int = 2
    _seconds: list[float] = field(default_factory=list)
    _fits: list[Trial] = field(default_factory=list)

    @property
    def device(self) -> str:
        """The device of the script's own steps."""
        return self.look.device

    @property
    def ranks(self) -> int:
        """The ranks that the command starts by itself."""
        return self.look.ranks

    @property
    def samples_per_s(self) -> float | None:
        """Samples per second of one rank of the original script; None if its samples are not known."""
        rate = self.look.samples_per_s
        return None if rate is None else rate / self.look.ranks

    @property
    def overhead_s(self) -> float:
        """Seconds of a typical launch, steps included."""
        return median(self._seconds) if self._seconds else self.look.start_s + 3.0

    def cost_s(self, request: TrialRequest) -> float:
        """Seconds of the launch and of its end."""
        return self._expected_s(request) + _ENDING_S

    def _expected_s(self, request: TrialRequest) -> float:
        """Seconds of a typical launch, plus the time that a larger batch adds to its steps."""
        growth = max(0.0, request.batches[0] / self.reference - 1.0) if request.batches else 0.0
        return self.overhead_s + growth * self.look.step_s * (request.steps + WARM_STEPS)

    def usual_patience_s(self, request: TrialRequest) -> float:
        """How long a launch may take: several times as long as the look's, since a larger batch takes longer."""
        growth = max(1.0, request.batches[0] / self.reference) if request.batches else 1.0
        steps_s = 3 * growth * self.look.step_s * (request.steps + 8)
        return max(30.0, 4 * self.look.start_s) + steps_s + 3 * request.seconds_per_batch

    def run(self, request: TrialRequest, deadline: Deadline, *, left_s: float, most_s: float | None = None) -> Trial:
        """Run one launch; if it hangs because the time was up, the trial says so."""
        del left_s
        usual_s = self.usual_patience_s(request)
        patience_s = deadline.patience_s(usual_s, self._expected_s(request))
        patience_s = min(patience_s, deadline.left_s - _ENDING_S, usual_s if most_s is None else most_s)
        trial = self.launches.run(request, patience_s=patience_s)
        if trial.end is End.HANG and patience_s < usual_s:
            return trial.model_copy(
                update={"end": End.TIME_UP, "detail": f"{trial.detail}, and no time was left for more"}
            )
        return trial

    def learn(self, trial: Trial) -> None:
        """Record the seconds of a launch, and the batch that its loader was built with."""
        if trial.end is not End.TIME_UP:
            self._seconds.append(trial.seconds / trial.measured.get(RUNS, 1.0))
        if trial.request.kind == "fit":
            self._fits.append(trial)

    def error_of(self, trial: Trial, base: Variant, left_s: float) -> GpudocError | None:
        """The error, such as NoLeverError, if a batch does not reach the loader; other failures are results."""
        del base, left_s
        if trial.request.kind != "fit":
            return None
        place = self.look.training.place if self.look.training is not None else "the loader"
        refused = next((one.refused["batch_size"] for one in self._fits if "batch_size" in one.refused), None)
        if refused is not None:
            return NoLeverError(f"{place}: the batch size stays: {refused}", exit_code=ExitCode.BAD_ANSWER)
        if not self.command.takes_batch:
            return None
        given = [(one.request.batches[0], int(one.measured.get("loader_batch", 0)) or None) for one in self._fits]
        return eaten_batch(str(self.command), given, place)

    def release(self) -> None:
        """Nothing is left to release: every launch has ended."""


CommandSession = Session[CommandRunner]


def eaten_batch(command: str, given: Sequence[tuple[int, int | None]], place: str) -> GpudocError | None:
    """The error if different values of {batch} gave the same loader: then the value gets lost on the way.

    `given` are pairs of the value of {batch} and the batch size of the loader that then fed the steps.
    """
    known = [(value, found) for value, found in given if found]
    if len({value for value, _ in known}) < 2 or len({found for _, found in known}) > 1:
        return None
    values = " and ".join(str(value) for value, _ in known)
    return GpudocError(
        f"{{batch}} does not reach the loader: with {values} in its place, {place} is built with batch size "
        f"{known[0][1]} each time",
        hint=f"write {{batch}} where the script reads its batch size, or leave it out: {command}",
        exit_code=ExitCode.NOT_DONE,
    )
