"""The output of a training: plain lines in a log, a live screen on a terminal, the last words on stdout."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.live import Live

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.redact import private
from gpudoc.frozen import dataclass
from gpudoc.process.stacks import little_stacks
from gpudoc.render import console, frame, train_memory
from gpudoc.render.live import SCREEN_STACK_BYTES
from gpudoc.render.live import Live as Teller
from gpudoc.render.train_live import Panel, slow, used
from gpudoc.render.train_page import train_page
from gpudoc.train.document import RunSummary, WrittenSummary
from gpudoc.train.events import Evaluated, Event, Finished, Progressed, Rescued, Said, Saved, Started
from gpudoc.train.request import TrainRequest
from gpudoc.train.start.place import Elsewhere
from gpudoc.units import format_bytes, format_count, format_figure, format_rate, format_seconds
from gpudoc.writing import check_places

# a plain log gets a line at most every 2 s, plus the first and the last step; above a live screen one every 30 s
_PLAIN_EVERY_S = 2.0
_STAYS_EVERY_S = 30.0
_BEFORE_THE_START = "building the model and the data set"


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """How to show a run."""

    as_json: bool = False
    plain: bool = False
    verbose: bool = False
    html: Path | None = None
    quiet: bool = False


def show(events: Iterator[Event], screen: Screen) -> int:
    """Show a run while it happens and return its exit code. The summary goes to stdout, everything else to stderr.

    A quiet screen shows nothing: another process speaks for this one.
    """
    if screen.quiet:
        ends = [event.exit_code for event in events if isinstance(event, Finished)]
        return ends[-1] if ends else ExitCode.FAULT
    check_places(screen.html)
    error = console.stderr(screen.plain)
    watcher = _Watcher(error, screen)
    try:
        watcher.wait()
        for event in events:
            watcher.see(event)
    except GpudocError as problem:
        if screen.verbose and problem.__cause__ is not None:
            watcher.close()
            error.print("".join(traceback.format_exception(problem.__cause__)), soft_wrap=True)
        raise
    finally:
        watcher.close()
    finished = watcher.finished
    if finished is None:
        return ExitCode.FAULT
    if screen.html is not None:
        train_page(finished, screen.html)
    if screen.as_json:
        console.print_json(private(finished.summary))
    else:
        frame.show(last_words(finished) + "\n", plain=screen.plain)
    console.say_written(screen.html)
    return finished.exit_code


def tell(other: Elsewhere, screen: Screen) -> int:
    """Say where the training went instead and return its exit code. Says nothing for ranks: they print themselves."""
    if other.say and screen.as_json:
        written: WrittenSummary = {"schema": "gpudoc.train.v1", "status": "written", "reason": other.say}
        console.print_json(private(written))
    elif other.say:
        console.stdout(screen.plain).print(other.say, soft_wrap=True)
    return other.exit_code


def show_proof(request: TrainRequest, screen: Screen) -> int:
    """Prove exact resume on the user's workload and print the verdict; returns 0 if exact, 1 if not."""
    from gpudoc.train.start.prove import explain, prove

    with Teller(plain=screen.plain or screen.as_json) as progress:
        verdict = prove(request.arguments, progress)
    if screen.as_json:
        console.print_json(private({**verdict.document(), "say": explain(verdict)}))
    else:
        console.stdout(screen.plain).print(explain(verdict), soft_wrap=True)
    return ExitCode.OK if verdict.exact else ExitCode.BAD_ANSWER


class _Watcher:
    def __init__(self, error: Console, screen: Screen) -> None:
        self._error = error
        self._screen = screen
        self._live: Live | None = None
        self._panel: Panel | None = None
        self._waiting: Teller | None = None
        self._last_line = 0.0
        self.finished: Finished | None = None

    def wait(self) -> None:
        """Show on a terminal that the run is being prepared, before the first event."""
        if self._error.is_terminal:
            self._waiting = Teller(self._screen.plain)
            self._waiting.advance(0.0, 0.0, _BEFORE_THE_START)

    def see(self, event: Event) -> None:
        match event:
            case Finished():
                self.finished = event
            case Started():
                for line in opening(event, verbose=self._screen.verbose):
                    self._say(line)
                self._begun()
                if self._error.is_terminal:
                    self._panel = Panel(event)
                    self._live = Live(self._panel, console=self._error, refresh_per_second=4, transient=True)
                    with little_stacks(SCREEN_STACK_BYTES):
                        self._live.start()
            case Progressed():
                if self._panel is not None:
                    self._panel.see(event)
                self._line(event)
            case _:
                line = describe(event)
                if line and (self._screen.verbose or not isinstance(event, Saved)):
                    self._say(line)

    def close(self) -> None:
        self._begun()
        if self._live is not None:
            self._live.stop()

    def _line(self, event: Progressed) -> None:
        now = time.monotonic()
        self._last_line = self._last_line or (now if self._panel is not None else 0.0)
        every_s = _PLAIN_EVERY_S if self._panel is None else _STAYS_EVERY_S
        if now - self._last_line >= every_s or event.step == event.end_step:
            self._last_line = now
            self._say(progress_line(event))

    def _begun(self) -> None:
        if self._waiting is not None:
            self._waiting.__exit__(None, None, None)
            self._waiting = None

    def _say(self, text: str) -> None:
        if not self._error.is_terminal:
            self._error.print(frame.in_words(text) if self._screen.plain else text, soft_wrap=True)
            return
        told = "\n".join(frame.fold(text, min(self._error.width, frame.WIDE), indent="  "))
        if self._waiting is None:
            self._error.print(frame.paint(told), soft_wrap=True)
        else:
            self._waiting.say(told)


def opening(event: Started, *, verbose: bool) -> list[str]:
    """The lines before the first step: model, data, settings and device; with each setting's source if `verbose`."""
    settings = event.settings
    batch = f"global batch {settings.global_batch}"
    if settings.accumulation > 1 or event.world > 1:
        ranks = f"{event.world} processes x " if event.world > 1 else ""
        batch += f" = {ranks}micro batch {settings.micro_batch} x {settings.accumulation}"
    epoch = "" if event.steps_per_epoch is None else f" ({event.steps_per_epoch} an epoch)"
    steps = f"steps {event.step} -> {event.end_step}{epoch}"
    samples = "a stream of samples" if event.num_samples is None else f"{event.num_samples:,} samples"
    lines = [
        f"{event.name}: {_short_count(event.num_parameters)} parameters, {samples}, {steps}",
        f"{event.device}, {settings.precision}, {batch}, {settings.num_workers} loader workers; run {event.run_dir}",
    ]
    if verbose:
        lines += [f"  {key:26} {value!s:12} {source}" for key, value, source in settings.rows()]
    return lines


def progress_line(event: Progressed) -> str:
    """One logged step as a line of a log."""
    busy = " ".join(
        f"{name} {event.split.share(phase):.0%}"
        for name, phase in (
            ("data", "data_wait"),
            ("transfer", "transfer"),
            ("compute", "compute"),
            ("communicate", "communicate"),
            ("python", "host"),
            ("compile", "compile"),
            ("checkpoint", "checkpoint"),
            ("evaluate", "evaluate"),
            ("other", "other"),
        )
        # a phase that most machines lack is named only if it took time
        if phase in ("data_wait", "compute", "other") or event.split.share(phase) >= 0.01
    )
    skipped = f"  skipped {event.num_skipped} not finite" if event.num_skipped else ""
    speed = format_rate(event.samples_per_s, "samples/s") + used(event.use)
    late = slow(event)
    return (
        f"step {event.step}/{event.end_step}  loss {event.loss:.4f}  lr {event.lr:.2e}  "
        f"{speed}  {format_bytes(event.memory_peak_bytes)}  {busy}{skipped}{late}"
    )


def describe(event: Event) -> str:
    """An event as one line; '' for a logged step and other events without one."""
    match event:
        case Said():
            return f"! {event.text}" if event.warning else event.text
        case Evaluated():
            figures = "".join(f"  {name} {value:.3f}" for name, value in event.figures.items())
            best = "  (best)" if event.best else ""
            return f"evaluated after step {event.step}: loss {event.loss:.4f}{figures}{best}"
        case Saved():
            return f"saved {event.path} ({format_bytes(event.num_bytes)}, written in {format_seconds(event.seconds)})"
        case Rescued():
            how = " with activation checkpointing" if event.activation_checkpointing else ""
            return (
                f"! out of memory at step {event.step} ({event.phase}; {event.shapes}): micro batch "
                f"{event.from_batch} -> {event.to_batch}{how}, repeating the step"
            )
        case _:
            return ""


def last_words(finished: Finished) -> str:
    """The end of a run: result, where the time went, one piece of advice, what to type next."""
    found = finished.summary
    lines = []
    if found.get("status") == "stopped":
        lines.append(f"stopped at step {found['steps']} of {found['end_step']}: {finished.reason}; state saved")
    elif finished.reason:
        lines.append(finished.reason)
    lines += _result(found)
    if found.get("seconds"):
        rate = found.get("samples_per_s")
        speed = f" at {format_rate(rate, 'samples/s')}" if rate else ""
        wall = format_seconds(sum(found["seconds"].values()))
        lines.append(f"{format_count(found['steps'], 'step')}, {wall}{speed}: {found['verdict']}")
    lines += _use(found)
    lines += [*train_memory.sentences(found), *_compiled(found)]
    for advice in (found.get("advice") or [])[:1]:
        lines.append(f"{advice['say']}" + (f": {advice['run']}" if advice["run"] else ""))
    lines.append(f"summary: {found['run_dir']}/summary.json")
    if finished.go_on:
        lines.append(f"continue with: {finished.go_on}")
    return "\n".join(lines)


def _use(found: RunSummary) -> list[str]:
    """How much of the device's arithmetic the run used, and of which peak; no lines if nothing was counted."""
    use = found.get("use") or {}
    tflops, mfu, hfu = use.get("model_tflops"), use.get("mfu"), use.get("hfu")
    if not isinstance(tflops, float):
        return []
    if not isinstance(mfu, float):
        return [f"{tflops:.3g} TFLOP/s of the model; no MFU: {use['peak_from']}"]
    more = f", HFU {hfu:.1%}" if isinstance(hfu, float) and hfu > mfu else ""
    return [f"MFU {mfu:.1%}{more}: {tflops:.3g} TFLOP/s per device of {use['peak_tflops']:g} ({use['peak_from']})"]


def _compiled(found: RunSummary) -> list[str]:
    """What torch.compile compiled again, and why; no lines if it compiled nothing again."""
    compiled = found.get("compilations")
    if not compiled or not compiled["again"]:
        return []
    first = compiled["again"][0]
    total = f"{compiled['count']} compilations took {format_seconds(compiled['seconds'])}"
    often = f"{first['function']} was compiled {first['times']} more times"
    return [f"{total}; {often}, most recently because {first['reason']}"]


def _result(found: RunSummary) -> list[str]:
    lines = []
    loss = found.get("final_loss")
    if loss is not None:
        lines.append(f"final loss {loss:.4f}")
    evaluation = found.get("evaluation")
    if evaluation is not None:
        bits = evaluation.get("bits_per_byte")
        if isinstance(bits, float):
            others = [
                f"{name.removesuffix('_bits_per_byte').replace('_', ' ')} {value:.2f}"
                for name, value in evaluation.items()
                if name.endswith("_bits_per_byte") and isinstance(value, float)
            ]
            beside = f" (for comparison: {', '.join(others)})" if others else ""
            lines.append(f"{bits:.3f} bits per byte on held-out text{beside}")
        else:
            lines.append(f"eval loss {format_figure(evaluation['loss'], '.4f')} after step {evaluation['step']}")
    if rescues := found.get("rescues"):
        lines.append(f"{format_count(len(rescues), 'out-of-memory error')} rescued")
    if skipped := found.get("num_skipped"):
        lines.append(f"{format_count(skipped, 'step')} skipped: their gradients were not finite")
    return lines


def _short_count(count: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)
