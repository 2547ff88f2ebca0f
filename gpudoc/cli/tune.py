"""The `gpudoc tune` command: for a config in gpudoc's own processes, or for a command after `--` with the hook."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import typer

from gpudoc.cli.options import HtmlFile, JsonFlag, PlainFlag, VerboseFlag, require_training, with_options
from gpudoc.control_characters import escape_controls
from gpudoc.errors import GpudocError
from gpudoc.tune.options import SearchOptions


@with_options(SearchOptions)
def tune(
    context: typer.Context,
    options: SearchOptions,
    as_json: JsonFlag = False,
    html: HtmlFile = None,
    plain: PlainFlag = False,
    verbose: VerboseFlag = False,
) -> int:
    """Find the largest batch, the fastest one and the loader that keeps up; write them as a profile.

    Example: gpudoc tune --model cfg.yaml --budget 5m | gpudoc tune -- python train.py --batch-size {batch}
    """
    started = time.monotonic()
    options = replace(options, command=context.obj.command)
    options.check()
    from gpudoc.render.console import say_written
    from gpudoc.render.live import Live
    from gpudoc.writing import check_places

    check_places(html)

    if options.command or not options.model:
        return _search_script(options, as_json=as_json, html=html, plain=plain, verbose=verbose)
    require_training("tune")
    if options.target:
        if html:
            raise GpudocError("--html shows a search, but --target predicts without one", hint="leave out one of them")
        return _predict(options, as_json=as_json, plain=plain)
    from gpudoc.doctor.spinning import bound_spinning
    from gpudoc.render.tune import show
    from gpudoc.render.tune_page import save
    from gpudoc.tune.run import run

    bound_spinning()
    with Live(plain=plain or as_json, keep=verbose) as progress:
        result = run(options, progress, since=started)
    if html:
        save(html, result)
    show(result, as_json=as_json, plain=plain, verbose=verbose, drawn=html is not None)
    say_written(html)
    return result.exit_code


def _search_script(options: SearchOptions, *, as_json: bool, html: Path | None, plain: bool, verbose: bool) -> int:
    from gpudoc.render import script as screen
    from gpudoc.render import script_page as pages
    from gpudoc.render.console import say_written
    from gpudoc.render.live import Live
    from gpudoc.script.search import run as search_command

    asks = may_run_in_place if sys.stdin.isatty() and sys.stderr.isatty() and not as_json else None
    with Live(plain=plain or as_json) as progress:
        found = search_command(options, progress, may_run_in_place=asks)
    if html:
        pages.save(html, found)
    screen.show(found, as_json=as_json, plain=plain, verbose=verbose)
    say_written(html)
    return found.exit_code


def may_run_in_place(why: str) -> bool:
    """Ask on the terminal whether trials may leave traces; an empty answer means no."""
    sys.stderr.write(f"{escape_controls(why)}\nRun them in place anyway? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _predict(options: SearchOptions, *, as_json: bool, plain: bool) -> int:
    from gpudoc import plan
    from gpudoc.render.live import Live
    from gpudoc.render.plan import show_targets
    from gpudoc.workload.build import load_workload

    with Live(plain=plain or as_json) as progress:
        result = plan.targets(load_workload(options.model), options.target.split(","), progress=progress)
    return show_targets(result, as_json=as_json, plain=plain)
