"""The `gpudoc fix` command: the smallest change to a script that helps, proved before it is offered."""

from __future__ import annotations

from dataclasses import replace

import typer

from gpudoc.cli.options import HtmlFile, JsonFlag, PlainFlag, SarifFile, VerboseFlag, with_options
from gpudoc.errors import GpudocError
from gpudoc.fix.options import FixOptions


@with_options(FixOptions)
def fix(
    context: typer.Context,
    options: FixOptions,
    html: HtmlFile = None,
    sarif: SarifFile = None,
    as_json: JsonFlag = False,
    plain: PlainFlag = False,
    verbose: VerboseFlag = False,
) -> int:
    """Find the smallest change to a script that makes it faster or lets it live, and prove that all else stays equal.

    Runs the script some times, each time without traces. Writes nothing without --write.

    Example: gpudoc fix -- python train.py --epochs 3 | gpudoc fix --write -- python train.py
    """
    try:
        from gpudoc.fix.run import run
        from gpudoc.render.fix import show
    except ModuleNotFoundError as problem:
        raise GpudocError(
            f"fix needs the package {problem.name}", hint='pip install ".[train]", in a clone of gpudoc'
        ) from problem
    from gpudoc.render import fix_page, fix_sarif
    from gpudoc.render.console import say_written
    from gpudoc.render.live import Live
    from gpudoc.writing import check_places

    options = replace(options, command=context.obj.command)
    check_places(options.patch, html, sarif)
    with Live(plain=plain or as_json) as progress:
        result = run(options, progress)
    if html:
        fix_page.save(html, result)
    if sarif:
        fix_sarif.save(sarif, result)
    show(result, as_json=as_json, plain=plain, verbose=verbose)
    say_written(options.patch if result.diff else None, html, sarif)
    return result.exit_code
