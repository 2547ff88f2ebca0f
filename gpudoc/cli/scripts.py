"""The `-- COMMAND` way of `gpudoc tune`: ask where trials would leave traces, search, render."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoc.cli.options import require_training
from gpudoc.control_characters import escape_controls
from gpudoc.errors import GpudocError

if TYPE_CHECKING:
    from gpudoc.script.options import Typed


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How the result is to be shown."""

    as_json: bool
    plain: bool
    verbose: bool
    html: Path | None


def tune_script(command: tuple[str, ...], typed: Typed, shown: Shown) -> int:
    """Tune the command, show what was found, and return the exit code."""
    from gpudoc.render.live import Live
    from gpudoc.render.script import show
    from gpudoc.render.script_page import save
    from gpudoc.script.options import options_of
    from gpudoc.script.search import run

    options = options_of(command, typed)
    asks = may_run_in_place if sys.stdin.isatty() and sys.stderr.isatty() and not shown.as_json else None
    with Live(plain=shown.plain or shown.as_json) as progress:
        result = run(options, progress, may_run_in_place=asks)
    if shown.html is not None:
        save(shown.html, result)
    show(result, as_json=shown.as_json, plain=shown.plain, verbose=shown.verbose)
    return result.exit_code


def refuse_for_config(given: Mapping[str, object]) -> None:
    """GpudocError (exit 2) for options that only a command has, or where what a config needs is not installed."""
    name = next((name for name, value in given.items() if value), None)
    if name is not None:
        raise GpudocError(f"{name} goes with a command after --, not with --model", hint=f"leave out {name}")
    require_training("tune")


def refuse_both(model: str, command: tuple[str, ...]) -> None:
    """GpudocError (exit 2) where a config and a command are named at once."""
    if model and command:
        raise GpudocError("--model and a command after -- exclude each other", hint="gpudoc tune -- COMMAND")


def may_run_in_place(why: str) -> bool:
    """Ask on the terminal whether trials may leave traces; no is the answer that needs no typing."""
    sys.stderr.write(f"{escape_controls(why)}\nRun them in place all the same? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
