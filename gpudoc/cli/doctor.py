"""The `gpudoc doctor` command."""

from __future__ import annotations

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
from gpudoc.cli.piped import point_out_unread, sources_or_stdin

if TYPE_CHECKING:
    from gpudoc.facts.readers.model import Language

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
    from gpudoc.render.live import Live

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
    with Live(plain=plain or json) as progress:
        progress.advance(0.0, 0.0, "reads" if given else "examining the driver, PyTorch and this machine")
        report = examine(asked, progress)
    show(report, output)
    point_out_unread(given)
    return report.exit_code(fail_on.value)


def _import_judges() -> None:
    """Import what judges a text and shows the answer: a sixth of the time went into looking for garbage there."""
    from gpudoc.process.imports import uncollected

    with uncollected():
        import gpudoc.cli.documents
        import gpudoc.doctor.registry
        import gpudoc.render.live  # noqa: F401
