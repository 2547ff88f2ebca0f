"""The command line: registers the commands, and turns every failure into one screen and an exit code."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, NoReturn

import typer

import gpudoc
from gpudoc.cli.bench import bench
from gpudoc.cli.doctor import doctor
from gpudoc.cli.options import Invocation
from gpudoc.cli.train import train
from gpudoc.cli.tune import tune
from gpudoc.errors import ExitCode, GpudocError

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

app = typer.Typer(
    name="gpudoc",
    help="Why training on a GPU does not start, runs out of memory or is slow; and the tuned trainer for it.",
    epilog="Example: gpudoc doctor && gpudoc tune --model cfg.yaml && gpudoc train --profile auto --model cfg.yaml",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=_HELP,
)

for command in (doctor, bench, tune, train):
    app.command(context_settings=_HELP)(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"gpudoc {gpudoc.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


def main() -> NoReturn:
    """Run the command in `sys.argv` and exit with its code; no user's mistake shows a traceback."""
    status = run(sys.argv[1:])
    if "RANK" in os.environ:
        from gpudoc.train.start.launch import exit_rank

        exit_rank(status)
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. What follows the first `--` is a command to watch."""
    own, watched = _split_at_dashes(arguments)
    try:
        result = app(args=own, obj=Invocation(command=tuple(watched)), standalone_mode=False, prog_name="gpudoc")
        return int(result or ExitCode.OK)
    except typer.Exit as end:
        return int(end.exit_code)
    except GpudocError as problem:
        code = _fail(own, problem.message, problem.hint, problem.exit_code)
        if problem.is_abrupt:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        return code
    except (KeyboardInterrupt, typer.Abort):
        return _fail(own, "interrupted", "", ExitCode.INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        return ExitCode.OK
    except Exception as fault:
        # older Typer raises click's usage errors, newer its own copy of them: both, and nothing else, have this method
        describe = getattr(fault, "format_message", None)
        if describe is not None:
            return _fail(own, describe(), "gpudoc --help", ExitCode.NOT_DONE)
        return _report_fault(own, fault)


def _split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]


def _fail(arguments: list[str], message: str, hint: str, code: ExitCode) -> int:
    if "--json" in arguments:
        print(json.dumps({"schema": "gpudoc.error.v1", "message": message, "hint": hint}))
    else:
        print(f"gpudoc: {message}", file=sys.stderr)
        if hint:
            print(f"  try: {hint}", file=sys.stderr)
    return code


def _report_fault(arguments: list[str], fault: Exception) -> int:
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="gpudoc-fault-", suffix=".txt", delete=False) as report:
        report.write(f"gpudoc {gpudoc.__version__}, Python {sys.version}\n")
        report.write("".join(traceback.format_exception(fault)))
    message = f"a fault of gpudoc itself: {type(fault).__name__}: {fault}"
    return _fail(arguments, message, f"open an issue with the file {report.name}", ExitCode.FAULT)
