"""`gpudoc doctor` with `--pid` or `-- COMMAND`: watch, judge, render, and return the exit code."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import TYPE_CHECKING

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.frozen import dataclass

if TYPE_CHECKING:
    from gpudoc.doctor.model import Report, Severity
    from gpudoc.facts.process import Watch
    from gpudoc.render.doctor_output import Output

SECONDS, LEAST_SECONDS = 20.0, 1.0
DEMO_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Wish:
    """The user's wish to watch a process, or a command to start, and for how long.

    Without `seconds`, a command is watched until its cause is clear, but at most for SECONDS.
    """

    pid: int | None
    command: tuple[str, ...]
    seconds: float | None
    ignore: tuple[str, ...]
    fail_on: Severity
    output: Output


def watch_job(wish: Wish) -> int:
    """Watch the process or the command, show the verdict, and return the exit code."""
    if wish.seconds is not None and wish.seconds < LEAST_SECONDS:
        raise GpudocError(f"--seconds {wish.seconds:g}: too short to see anything", hint="--seconds 20")
    if wish.pid is not None and wish.command:
        raise GpudocError("--pid and a command after -- exclude each other", hint="gpudoc doctor --pid PID")
    return _watch_command(wish) if wish.command else _watch_process(wish)


def _watch_process(wish: Wish) -> int:
    from gpudoc.doctor.live.judge import judge
    from gpudoc.facts import watch
    from gpudoc.render.console import say_written
    from gpudoc.render.live import Live

    with Live(wish.output.plain) as progress:
        seen = watch(pid=wish.pid or 0, seconds=wish.seconds or SECONDS, progress=progress)
    report = judge(seen, ignore=wish.ignore)
    _show(report, seen, wish.output, None)
    say_written(*wish.output.files)
    return report.exit_code(wish.fail_on)


def _watch_command(wish: Wish) -> int:
    from gpudoc.doctor.live.judge import clear_cause, is_empty, judge, judge_end
    from gpudoc.facts import Listener, launch
    from gpudoc.render import console, frame, watch
    from gpudoc.render.doctor_output import show
    from gpudoc.render.live import Live

    def hangs(report: Report | None) -> bool:
        return report is not None and any(finding.id == "job_hung" for finding in report.findings)

    told: list[tuple[Report, Watch]] = []
    printed_since = False

    def watched(seen: Watch) -> None:
        nonlocal printed_since
        told.append((judge(seen, ignore=wish.ignore), seen))
        printed_since = False
        if not wish.output.json:
            _show(*told[-1], wish.output, None)

    def stalled(seen: Watch) -> None:
        # neither a pause without a cause nor a hang that is already reported is news
        if not hangs(told[-1][0] if told else None) and hangs(judge(seen, ignore=wish.ignore)):
            watched(seen)

    def sink(stream: int, data: bytes) -> None:
        nonlocal printed_since
        printed_since = bool(told)
        os.write(2 if wish.output.json else stream, data)

    # no progress bar, since it would appear between the lines of the command
    clear = functools.partial(clear_cause, ignore=wish.ignore) if wish.seconds is None else None
    listener = Listener(sink=sink, watched=watched, stalled=stalled, clear=clear, progress=Live(plain=True))
    end = launch(wish.command, seconds=wish.seconds or SECONDS, listener=listener)
    # a job that stood still and then ended well did not hang
    last, seen = told[0 if end.exit_code == 0 else -1] if told else (None, None)
    report = judge_end(last, end, ignore=wish.ignore)
    if wish.output.json:
        _show(report, seen, wish.output, {"exit_code": end.exit_code, "signal": end.signal})
    elif is_empty(report):
        console.stderr(plain=wish.output.plain).print(watch.render_nothing(report), end="", soft_wrap=True)
    elif report is not last:
        show(report, wish.output)
    elif printed_since and not wish.output.markdown:
        frame.show(watch.render_again(report), plain=wish.output.plain)
    if wish.output.json or report is last:
        console.say_written(*wish.output.files)
    if end.signal is not None:
        return 128 + end.signal
    if end.exit_code is None:
        console.print_lines(
            "gpudoc: it is not known how the command ended, because another process collected its exit code", sys.stderr
        )
        return ExitCode.BAD_ANSWER
    return end.exit_code or report.exit_code(wish.fail_on)


def watch_demo(script: str, *, plain: bool) -> None:
    """Run a training script, watch it for a few seconds, show the verdict, and end it.

    GpudocError if it cannot run: without torch in the Python that doctor would examine, or without py-spy.
    """
    from gpudoc.doctor.live.judge import judge
    from gpudoc.facts import Listener, launch
    from gpudoc.process.ending import SIGKILL
    from gpudoc.render.doctor_output import Output
    from gpudoc.render.live import Live
    from gpudoc.temporary import TemporaryFolder

    python = _python_with_torch()
    output = Output(plain=plain)

    def watched(seen: Watch) -> None:
        _show(judge(seen), seen, output, None)
        with contextlib.suppress(ProcessLookupError):
            os.kill(seen.pid, SIGKILL)

    with TemporaryFolder("demo") as folder, Live(plain=plain) as progress:
        (folder / "train.py").write_text(script, "utf-8")
        # code lines are named relative to the job's folder, and torch's temporary files are removed with it
        command = ["sh", "-c", 'cd "$0" && exec env TMPDIR="$0" "$1" train.py', str(folder), python]
        listener = Listener(sink=lambda *_: None, watched=watched, progress=progress)
        launch(command, seconds=DEMO_SECONDS, listener=listener)


def _python_with_torch() -> str:
    """The Python that doctor examines; GpudocError if it has no torch or py-spy is missing."""
    import subprocess

    from gpudoc.facts.collection import examined_python
    from gpudoc.facts.live import spy
    from gpudoc.facts.model import Absent

    python = str(examined_python(os.environ))
    looks = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    if subprocess.run([python, "-c", looks], capture_output=True, check=False).returncode:
        raise GpudocError(
            f"this demo runs a real job and needs torch, which {python} does not have", hint="pip install torch"
        )
    program = spy.find()
    if isinstance(program, Absent):
        raise GpudocError(f"gpudoc watches a running job with py-spy: {program.reason}", hint="pip install py-spy")
    return python


def _show(report: Report, seen: Watch | None, output: Output, ended: dict[str, object] | None) -> None:
    from gpudoc.doctor import document
    from gpudoc.facts.redact import whole
    from gpudoc.render import console, doctor_page, frame, page, watch, watch_page
    from gpudoc.render.doctor_output import redactor_of, render_markdown

    clean, shared = report, seen
    # files and pasted output may leave this machine, the screen does not
    if output.redact and output.leaves:
        redactor = redactor_of(report)
        clean, shared = redactor.clean(report), redactor.clean(seen)
    kept = whole(watch.to_json(document.dump(clean), shared, ended))
    if output.html is not None and shared is not None:
        watch_page.save(output.html, clean, shared)
    elif output.html is not None:
        page.save_page(output.html, doctor_page.render_page(clean))
    shape = frame.form(output.plain, piped=frame.WIDE)
    text = ""
    if seen is not None:
        text = watch.render(report, seen, verbose=output.verbose, width=shape.width, boxed=shape.boxed)
    if output.out is not None:
        told = watch.render(clean, shared, verbose=True) if shared is not None else ""
        watch.save_text(output.out, told, kept)
    if output.json:
        console.print_json(kept)
    elif output.markdown:
        console.stdout(plain=True).print(render_markdown(clean), end="", soft_wrap=True)
    else:
        frame.show(text, plain=output.plain)
