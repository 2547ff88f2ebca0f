"""The result of one launch of the script: a trial for the search, or the error that says why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpudoc.doctor.model import shorten
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.patterns import Pattern
from gpudoc.process.cpu_load import CpuLoad
from gpudoc.process.ending import how_it_ended
from gpudoc.process.shortage import Shortage
from gpudoc.script.cell import blame
from gpudoc.script.hook import ProcessSeen
from gpudoc.script.look import blocks, look_at, steady
from gpudoc.script.messages import ErrorSeen
from gpudoc.tune.trial.messages import End, Measures, Point, Trial, TrialRequest
from gpudoc.tune.trial.outcome import classify_status
from gpudoc.units import format_count, format_seconds

LEAST_STEPS = 3
_MEMORY = {
    Shortage.DEVICE: End.OOM_DEVICE,
    Shortage.WORKSPACE: End.OOM_WORKSPACE,
    Shortage.HOST: End.OOM_HOST,
    Shortage.SHM: End.OOM_SHM,
}
# whether a batch fits does not depend on finite weights
_OF_MEMORY = ("fit", "steady")
_TERMINAL = Pattern(r"EOFError|Inappropriate ioctl|not a (tty|terminal)|/dev/tty|setupterm|No controlling terminal")
_ASK_DOCTOR = "gpudoc doctor -- COMMAND, with the same command, runs it unchanged and names the cause"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """One launch: the reports of its processes, how it ended, and the load that was measured from outside.

    `status` is None if gpudoc ended the trial because it was measured or its time was over (`timed_out`).
    `loads` are figures of its processes as the system counts them, `beside` other processes' use of the CPUs;
    `full`: it filled all the room of its cell.
    """

    seen: tuple[ProcessSeen, ...]
    status: int | None
    tail: str
    seconds: float
    start_s: float
    timed_out: bool = False
    cgroup_killed: bool = False
    has_network: bool = True
    full: bool = False
    room_bytes: int = 0
    loads: Measures = field(default_factory=dict)
    beside: CpuLoad | None = None

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the process that made the most."""
        return max((one.total.steps for one in self.seen), default=0)

    @property
    def has_diverged(self) -> bool:
        """Whether the weights of a process were seen to be NaN or infinite."""
        return any(one.has_diverged for one in self.seen)

    @property
    def error(self) -> ErrorSeen | None:
        """The first exception that ended a process; an exception about memory comes before all others."""
        errors = [one.error for one in self.seen if one.error is not None]
        return next((error for error in errors if error.shortage is not None), errors[0] if errors else None)


def trial_of(request: TrialRequest, told: LaunchRecord, *, warm_steps: int, wake_s: float = 0.0) -> Trial:
    """The trial: its end, and, if steps were counted, one point whose blocks of steps are in seconds per batch."""
    end, detail = _end_of(told)
    if end is End.FITS and told.has_diverged and request.kind not in _OF_MEMORY:
        end, detail = End.USER_ERROR, f"the weights are NaN or infinite {_after(told)}: it trains differently"
    look = look_at(told.seen, warm_steps=warm_steps, start_s=told.start_s, wake_s=wake_s)
    batch = request.batches[0] if request.batches else (look.batch if look else None) or 1
    stage = "steps" if told.num_steps else "start"
    common = {"request": request, "end": end, "detail": detail, "stage": stage, "how": "launch"}
    common["seconds"] = round(told.seconds, 3)
    if look is None:
        return Trial.model_validate({**common, "failed_batch": None if end is End.FITS else batch}).beside(told.beside)
    trains = next(one for one in told.seen if one.trains)
    stretch = steady(trains, warm_steps, wake_s)
    # an optimizer step may take several batches
    per_step = (look.samples_per_step or batch) / batch
    point = Point(
        batch=batch,
        peak_bytes=look.peak_bytes,
        step_s=tuple(round(value / per_step, 7) for value in blocks(stretch.step_s)),
    )
    measured: Measures = {
        "steps": float(look.steps),
        "mean_step_s": look.step_s,
        "wait_share": look.wait_share,
        "ranks": float(look.ranks),
        "start_s": look.start_s,
        "loader_batch": float((look.feeding.batch_size if look.feeding else None) or 0),
        **({} if look.samples_per_s is None else {"samples_per_s": look.samples_per_s}),
        **told.loads,
    }
    waits = {"wait_s": stretch.wait_s[:400], "step_s": stretch.step_s[:400]}
    return Trial.model_validate(
        {
            **common,
            "points": (point,),
            "measured": measured,
            "legs": waits,
            "failed_batch": None if end is End.FITS else batch,
        }
    ).beside(told.beside, on_gpu=look.on_gpu)


def busy_times(trial: Trial) -> list[float]:
    """Seconds of each step of a launch without its waiting for data; empty if single steps are not known."""
    pairs = zip(trial.legs.get("step_s", ()), trial.legs.get("wait_s", ()), strict=False)
    return [max(1e-6, step_s - wait_s) for step_s, wait_s in pairs]


def _end_of(told: LaunchRecord) -> tuple[End, str]:
    error = told.error
    if error is not None and error.shortage is not None:
        return _MEMORY[error.shortage], shorten(error.text, 400)
    if told.status is None and not told.timed_out:
        return End.FITS, ""
    if told.status is None:
        if told.num_steps > LEAST_STEPS:
            return End.FITS, ""
        return End.HANG, f"{format_count(told.num_steps, 'optimizer step')} in {format_seconds(told.seconds)}"
    if told.status == 0:
        if told.num_steps >= LEAST_STEPS:
            return End.FITS, ""
        return End.USER_ERROR, f"it ended with code 0 after {format_count(told.num_steps, 'optimizer step')}"
    # a launcher of ranks says that a rank died, but not why
    end, sentence = classify_status(told.status, told.tail, lambda: told.cgroup_killed)
    if end is End.USER_ERROR and told.cgroup_killed:
        return End.OOM_CGROUP, "the kernel killed a process because the cgroup ran out of memory"
    return end, shorten(error.text, 400) if error is not None and end is End.USER_ERROR else sentence


def _after(told: LaunchRecord) -> str:
    return f"after {format_count(told.num_steps, 'optimizer step')}"


def divergence(told: LaunchRecord, name: str) -> GpudocError:
    """The error for a training whose weights are not finite."""
    return GpudocError(
        f"{name} learns nothing even unchanged: its weights are NaN or infinite {_after(told)}; tune does not "
        "compare such steps",
        hint="lower the learning rate, clip gradients, or look for NaN in the data: gpudoc doctor LOG tells them apart",
        exit_code=ExitCode.BAD_ANSWER,
    )


def refusal(told: LaunchRecord, name: str) -> GpudocError:
    """The error for a launch without steady steps: why nothing can be tuned, and what to type."""
    error, last = told.error, _last_lines(told.tail)
    ended = "" if told.status is None else how_it_ended(told.status)
    if told.status not in (None, 0) or error is not None:
        what = error.text if error is not None else last or ended
        found = f"{name} fails even unchanged: {shorten(what, 300)}"
        return GpudocError(found, hint=_hint(told, name), exit_code=ExitCode.BAD_ANSWER)
    if not told.seen:
        if told.timed_out:
            waited = format_seconds(told.seconds)
            return GpudocError(
                f"{name} imported no torch within {waited}", hint=_hint(told, name, "use a longer --budget")
            )
        return GpudocError(
            f"{name} ended without importing torch, so it has no training steps",
            hint=(
                "pass the command that trains; a Python started with -I or -E, or in another container, is not visible"
            ),
        )
    asides = [why for one in told.seen for why in one.asides]
    if asides:
        return GpudocError(
            f"the script could not be examined: {asides[0]}",
            hint="open an issue with this line and the script's torch version",
            exit_code=ExitCode.FAULT,
        )
    num_loaders = sum(len(one.loaders) for one in told.seen)
    built = f"{format_count(num_loaders, 'DataLoader')} seen"
    within = f"within {format_seconds(told.seconds)}" if told.timed_out else f"before it {ended}"
    if told.num_steps:
        return GpudocError(
            f"{name} made only {format_count(told.num_steps, 'optimizer step')} {within} ({built}): too few to measure",
            hint="let it train longer (more steps or epochs)" if not told.timed_out else "use a longer --budget",
            exit_code=ExitCode.BAD_ANSWER,
        )
    return GpudocError(
        f"{name} made no optimizer step {within} ({built})",
        hint=_hint(told, name, "pass the command that trains; if its first step comes late, use a longer --budget"),
        exit_code=ExitCode.BAD_ANSWER,
    )


def _hint(told: LaunchRecord, name: str, otherwise: str = "") -> str:
    text = told.tail + (told.error.text if told.error is not None else "")
    blamed = blame(text, full=told.full, room_bytes=told.room_bytes, network=told.has_network)
    if blamed is not None:
        return f"{blamed[0]}: {blamed[1]}"
    if _TERMINAL.search(text):
        return f"trials have no terminal: pass {name} its answers as arguments"
    if otherwise:
        return otherwise
    last = _last_lines(told.tail)
    return last if last and last not in (told.error.text if told.error else last) else _ASK_DOCTOR


def _last_lines(tail: str) -> str:
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    return shorten(lines[-1], 300) if lines else ""
