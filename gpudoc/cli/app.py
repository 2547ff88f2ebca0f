"""The command line: registers the commands, and turns every failure into one screen and an exit code."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import sys
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import gpudoc
from gpudoc.cli.options import Invocation
from gpudoc.cli.usage import meant_command, misplaced_options, way_on
from gpudoc.control_characters import escape_controls
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.own_files import ARCHIVE, IN_ARCHIVE, INSTALL
from gpudoc.patterns import Pattern

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# the exit code of a command whose output was cut off before its answer: the shell's code for an end by SIGPIPE
_READER_GONE = 128 + 13
# the exit code of argparse, click and tools built on them for a wrong option
_WRONG_OPTION = 2
# a file name may contain a line end, and the text after it is never a hint
_LIKE_A_HINT = Pattern(r"\n(?=[ \t]*try:)")
_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class _Commands(TyperGroup):
    """The commands; Ctrl+C that no command handles is reported like a failure, while Typer would say nothing.

    For a command that does not exist, the error names the command that was meant; Typer guesses by letters alone.
    """

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> tuple[str | None, Any, list[str]]:  # type: ignore[override]
        """The command that was typed; GpudocError if no command has that name."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise GpudocError(
                f"No such command {args[0]!r}.", hint=meant_command(args[0], tuple(self.commands), args[1:])
            )
        return super().resolve_command(ctx, args)

    # newer Typer has its own copy of click, with its own Context
    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise GpudocError("interrupted", exit_code=ExitCode.INTERRUPTED) from None


# short enough for one line of the list at 80 columns; each command is the function of this name in its file
_SHORT = {
    "doctor": "Find out why the GPU does not train, and how to fix it.",
    "bench": "Measure how fast this machine is, and how fast it could be.",
    "tune": "Find the fastest settings that fit; save them as a profile.",
    "fix": "Find the smallest change that helps a script, and prove it.",
    "train": "Train with them: exact resume, rescue from out-of-memory errors.",
    "demo": "Show six failures and doctor's answers, without a GPU or a file.",
    "check": "Check cfg.yaml files and profiles for mistakes.",
    "mcp": "Serve all this to a coding agent (MCP).",
    "clean": "Remove what gpudoc keeps on this machine.",
}


def application(word: str = "") -> typer.Typer:
    """The command line; if `word` is a command, it has only this command and imports only its file."""
    return _application((word,) if word in _SHORT else tuple(_SHORT))


@functools.cache
def _application(names: tuple[str, ...]) -> typer.Typer:
    made = typer.Typer(
        name="gpudoc",
        cls=_Commands,
        help="Find out why training on a GPU fails to start, runs out of memory or is slow; then tune it and train.",
        epilog="Example: gpudoc doctor && gpudoc tune --model cfg.yaml && gpudoc train --profile auto --model cfg.yaml",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=_HELP,
    )
    made.callback()(_options)
    for name in names:
        command = getattr(import_module(f"gpudoc.cli.{name}"), name)
        made.command(context_settings=_HELP, short_help=_SHORT[name])(command)
    return made


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpudoc {gpudoc.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


def main() -> NoReturn:
    """Run the command in `sys.argv` and exit with its code; a user's mistake never shows a traceback."""
    status = run(sys.argv[1:])
    # only torch leaves threads behind that a rank must not wait for
    if "RANK" in os.environ and "torch" in sys.modules:
        from gpudoc.train.start.launch import exit_rank

        exit_rank(status)
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. The words after the first `--` are a command to watch."""
    own, watched = _split_at_dashes(arguments or ["--help"])
    own = [*own[1:2], "--help"] if own[:1] == ["help"] else own
    misplaced = misplaced_options(own, watched, _options_of) if watched else None
    if misplaced is not None:
        _say(f"gpudoc: {misplaced.said}; {misplaced.hint}")
    try:
        result = application(own[0])(
            args=own, obj=Invocation(command=tuple(watched)), standalone_mode=False, prog_name="gpudoc"
        )
        _flush()
        # a script ends with this code if it does not know an option
        if misplaced is not None and result == _WRONG_OPTION:
            _say(f"  try: {misplaced.hint}")
        return int(result or ExitCode.OK)
    except typer.Exit as end:
        return _written(own, int(end.exit_code))
    except GpudocError as problem:
        died_of_it = misplaced is not None and any(name in problem.message for name in misplaced.options)
        hint = misplaced.hint if misplaced is not None and died_of_it else problem.hint
        code = _fail(own, problem.message, hint, problem.exit_code)
        if problem.is_abrupt:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        return code
    except (KeyboardInterrupt, typer.Abort):
        return _fail(own, "interrupted", "", ExitCode.INTERRUPTED)
    except (BrokenPipeError, SystemExit) as end:
        # typer turns a closed pipe into an exit
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise
        _flush()
        is_help = not own or bool({"--help", "-h", "--version"} & set(own))
        return ExitCode.OK if is_help else _READER_GONE
    except Exception as fault:
        if isinstance(fault, OSError) and fault.errno in _DISK_FULL:
            return _disk_is_full(own, fault)
        if isinstance(fault, MemoryError):
            said = "this process cannot get more memory: the machine's memory, or the process's own limit, is used up"
            return _fail(own, said, "free -h; ulimit -d -v", ExitCode.NOT_DONE)
        if isinstance(fault, ModuleNotFoundError) and IN_ARCHIVE:
            return _fail(own, f"this needs {fault.name}, which is not in {ARCHIVE}", INSTALL, ExitCode.NOT_DONE)
        # older Typer raises click's usage errors, newer its own copy of them: both, and nothing else, have this method
        describe = getattr(fault, "format_message", None)
        if describe is not None:
            return _fail(own, describe(), way_on(own, describe()), ExitCode.NOT_DONE)
        return _report_fault(own, fault)


def _options_of(command: str) -> dict[str, bool]:
    """The long options of a command, each with whether a value follows it."""
    known = typer.main.get_command(application(command)).commands.get(command)  # type: ignore[attr-defined]
    names = [(name, option) for option in (known.params if known else ()) for name in option.opts]
    return {name: not getattr(option, "is_flag", False) for name, option in names if name.startswith("--")}


def _split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]


def _flush() -> None:
    """Flush stdout; drop the rest if the reader is gone, so that Python does not complain about it at exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        from gpudoc.render.console import lose_reader

        lose_reader(sys.stdout)


def _written(arguments: list[str], code: int) -> int:
    """`code` once the output is written; another exit code if the disk is full."""
    try:
        _flush()
    except OSError as fault:
        if fault.errno not in _DISK_FULL:
            raise
        return _disk_is_full(arguments, fault)
    return code


def _disk_is_full(arguments: list[str], fault: OSError) -> int:
    from gpudoc.render.console import lose_reader

    try:
        sys.stdout.flush()
    except OSError:
        # Python would write it again at exit, and end with 120
        lose_reader(sys.stdout)
    where = fault.filename or "the output, or a temporary file"
    return _fail(arguments, f"{where}: {fault.strerror}", "df -h . /tmp shows which disk is full", ExitCode.NOT_DONE)


def _fail(arguments: list[str], message: str, hint: str, code: ExitCode) -> int:
    from gpudoc.facts.redact import private
    from gpudoc.render.console import lose_reader, print_json, print_lines

    if "--json" in arguments:
        with contextlib.suppress(OSError):
            print_json(private({"schema": "gpudoc.error.v1", "message": message, "hint": hint}), indent=None)
            return code
        lose_reader(sys.stdout)
    with contextlib.suppress(OSError):
        said = _LIKE_A_HINT.sub(r"\\x0a", escape_controls(f"gpudoc: {message}"))
        print_lines(_folded(said), sys.stderr)
        if hint:
            print_lines(f"  try: {hint}", sys.stderr)
    return code


def _say(line: str) -> None:
    from gpudoc.render.console import print_lines

    with contextlib.suppress(OSError):
        print_lines(_folded(escape_controls(line)), sys.stderr)


def _folded(text: str) -> str:
    """A message folded to the terminal's width between words; indented lines and piped output stay as they are."""
    if not sys.stderr.isatty():
        return text
    width = max(20, shutil.get_terminal_size().columns)
    from textwrap import fill

    return "\n".join(
        line
        if len(line) <= width or line.startswith(" ")
        else fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    )


def _report_fault(arguments: list[str], fault: Exception) -> int:
    import tempfile
    import traceback

    from gpudoc.facts.redact import Redactor

    told = f"gpudoc {gpudoc.__version__}, Python {sys.version}\n" + "".join(traceback.format_exception(fault))
    # the report is meant for a public issue
    told = escape_controls(Redactor.of_this_process().text(told))
    message = f"a fault of gpudoc itself: {type(fault).__name__}: {fault}"
    try:
        with tempfile.NamedTemporaryFile("w", prefix="gpudoc-fault-", suffix=".txt", delete=False) as report:
            report.write(told)
    except OSError:
        # no file can be written here, and the report is worth more than a tidy screen
        return _fail(arguments, message, f"open an issue with these lines:\n{told}", ExitCode.FAULT)
    return _fail(arguments, message, f"open an issue with the file {report.name}", ExitCode.FAULT)
