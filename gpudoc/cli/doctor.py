"""The `gpudoc doctor` command."""

from __future__ import annotations

import array
import os
import stat
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpudoc.cli.options import (
    AnswerLanguage,
    HtmlFile,
    IgnoredCauses,
    JsonFlag,
    OutFile,
    PlainFlag,
    SarifFile,
    VerboseFlag,
    complete_cause,
)

if TYPE_CHECKING:
    from gpudoc.doctor.examine import Request
    from gpudoc.doctor.model import Report
    from gpudoc.facts.readers.model import Language

_SHORT_BYTES = 1 << 20
WatchSeconds = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        metavar="S",
        help="Watch for this long. [default: 20; a command: until the cause is clear]",
    ),
]

ExplainedCause = Annotated[
    str | None,
    typer.Option(
        "--explain", metavar="ID", autocompletion=complete_cause, help="Explain one cause: meaning, fix, sources."
    ),
]


class FailOn(str, Enum):
    """From which severity on the exit code is 1."""

    broken = "broken"
    warning = "warning"


WatchedJob = Annotated[
    int | None,
    typer.Option(
        "--pid", metavar="PID", min=1, help="Watch this running job. To start one and watch it: doctor -- COMMAND."
    ),
]


def doctor(
    context: typer.Context,
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE", help="Files, a folder of logs, an error's text, or -; default: this machine."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Do not import torch; read its build from files.")] = False,
    python: Annotated[
        Path | None, typer.Option("--python", metavar="PATH", help="Examine the torch of this Python.")
    ] = None,
    expect_gpus: Annotated[
        int | None,
        typer.Option("--expect-gpus", metavar="N", min=0, help="Expect this many GPUs, and report missing ones."),
    ] = None,
    ignore: IgnoredCauses = None,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Exit with 1 at this severity or worse.")
    ] = FailOn.broken,
    show_list: Annotated[bool, typer.Option("--list", help="List all causes that doctor knows.")] = False,
    explain: ExplainedCause = None,
    pid: WatchedJob = None,
    seconds: WatchSeconds = None,
    slurm: Annotated[
        Path | None, typer.Option("--slurm", metavar="FILE", help="Write an sbatch file that examines every node.")
    ] = None,
    json: JsonFlag = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the report as Markdown, ready to paste.")] = False,
    html: HtmlFile = None,
    sarif: SarifFile = None,
    out: OutFile = None,
    no_redact: Annotated[
        bool, typer.Option("--no-redact", help="Keep names, paths and addresses in the output.")
    ] = False,
    plain: PlainFlag = False,
    verbose: VerboseFlag = False,
    language: AnswerLanguage = None,
) -> int:
    """Name what keeps the GPU from training, on this machine or in a report, log or traceback.

    Example: gpudoc doctor | gpudoc doctor train.log | gpudoc doctor --pid PID | gpudoc doctor -- python train.py
    """
    _import_judges()
    from gpudoc.cli.documents import judge_documents
    from gpudoc.cli.watching import Wish, watch_job
    from gpudoc.doctor.examine import Request, examine
    from gpudoc.render.catalogue import show_catalogue
    from gpudoc.render.doctor_output import Output, show

    watched = pid is not None or bool(context.obj.command)
    if slurm is not None:
        from gpudoc.cli.across import write_doctor_job

        return write_doctor_job(slurm, sources=bool(sources), watched=watched)
    if show_list or explain is not None:
        return show_catalogue(explain, as_json=json)
    asks_else = watched or quick or python is not None or expect_gpus is not None
    given, left_out = sources_or_stdin(sources, asks_else=asks_else), tuple(ignore or ())
    output = Output(
        json=json, markdown=markdown, html=html, sarif=sarif, sources=given, out=out,
        verbose=verbose, plain=plain, redact=not no_redact,
    )  # fmt: skip
    if watched:
        output.refuse_sarif("a watched job")
        return watch_job(Wish(pid, context.obj.command, seconds, left_out, fail_on.value, output))
    if (judged := judge_documents(given, left_out, fail_on.value, output)) is not None:
        return judged
    spoken: Language | None = None if language is None else language.value
    asked = Request(
        sources=given, quick=quick, python=python, expect_gpus=expect_gpus, ignore=left_out, language=spoken
    )
    report = examine(asked) if _are_short(given) else _examine_long(asked, plain=plain or json)
    show(report, output)
    point_out_unread(given)
    return report.exit_code(fail_on.value)


def _are_short(sources: Sequence[str]) -> bool:
    """Whether all sources are small files: reading them takes less time than a line of progress."""
    try:
        return bool(sources) and sum(os.stat(source).st_size for source in sources) < _SHORT_BYTES  # noqa: PTH116
    except (OSError, ValueError):
        return False


def _examine_long(asked: Request, *, plain: bool) -> Report:
    """The report of a machine or of large files, with a line of progress until it is done."""
    from gpudoc.doctor.examine import examine
    from gpudoc.render.live import Live

    with Live(plain=plain) as progress:
        what = "reads" if asked.sources else "examining the driver, PyTorch and this machine"
        progress.advance(0.0, 0.0, what)
        return examine(asked, progress)


def _import_judges() -> None:
    """Import the code that judges and shows a text, without garbage collection, which took a sixth of the time."""
    from gpudoc.process.imports import uncollected

    with uncollected():
        import gpudoc.cli.documents
        import gpudoc.doctor.registry  # noqa: F401


def is_text_piped_in(handle: int = 0) -> bool:
    """Whether stdin holds a text that is meant for this process alone.

    False for a terminal, an empty pipe, and an input that the parent reads too: the rest of a script or of a list that
    a shell reads line by line. Does not read the text.
    """
    return waits(handle) and not _is_the_parents(handle)


def waits(handle: int = 0) -> bool:
    """Whether piped or redirected bytes are ready on stdin; does not wait."""
    try:
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode):
            return os.lseek(handle, 0, os.SEEK_CUR) < status.st_size
    except OSError:
        return False
    return stat.S_ISFIFO(status.st_mode) and _num_waiting(handle) > 0


def sources_or_stdin(sources: Sequence[str] | None, *, asks_else: bool) -> tuple[str, ...]:
    """The typed sources; '-' (stdin) if there are none, nothing else is asked and a text is piped in."""
    return ("-",) if not sources and not asks_else and is_text_piped_in() else tuple(sources or ())


def point_out_unread(sources: Sequence[str]) -> None:
    """Say on stderr that a text waits on stdin if there is one and no source was given."""
    if not sources and waits():
        from gpudoc.render.console import print_lines

        print_lines("gpudoc: text is waiting on stdin, but was not read; to read it: gpudoc doctor -", sys.stderr)


def _num_waiting(handle: int) -> int:
    """How many bytes are in a pipe; 0 if the system cannot say."""
    if sys.platform == "win32":
        return 0
    import fcntl
    import termios

    held = array.array("i", [0])
    try:
        fcntl.ioctl(handle, termios.FIONREAD, held)
    except OSError:
        return 0
    return held[0]


def _is_the_parents(handle: int) -> bool:
    """Whether the parent's stdin is the same file; True if unknown, since reading would take its text away."""
    try:
        own, parents = os.fstat(handle), Path(f"/proc/{os.getppid()}/fd/{handle}").stat()
    except OSError:
        return True
    return (own.st_dev, own.st_ino) == (parents.st_dev, parents.st_ino)
