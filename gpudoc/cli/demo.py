"""The `gpudoc demo` command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpudoc.cli.options import PlainFlag

if TYPE_CHECKING:
    from gpudoc.knowledge.failures import Failure


def demo(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="wheel, memory, loader, gpu, rank or nan; or a number.")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show all of them, one after the other.")] = False,
    text: Annotated[bool, typer.Option("--text", help="Print only the text or script, to try it yourself.")] = False,
    plain: PlainFlag = False,
) -> int:
    """Show six failures and doctor's answers to them, without a GPU or a file.

    The texts are invented; the answers are what doctor says to them now. One failure is a real job, which runs and is
    watched for a few seconds; it needs torch.

    Example: gpudoc demo | gpudoc demo memory | gpudoc demo --all
    """
    import sys

    from gpudoc.knowledge.failures import FAILURES
    from gpudoc.render import frame
    from gpudoc.render.console import print_lines
    from gpudoc.render.demo import render_list

    if text:
        print_lines(_find(name or FAILURES[0].name).text.removesuffix("\n"))
    elif name is not None:
        _show(_find(name), plain)
    elif show_all:
        for number, one in enumerate(FAILURES, 1):
            _show(one, plain, goes_on=True)
            if number < len(FAILURES) and sys.stdin.isatty() and _ask("Enter shows the next one, q ends") == "q":
                break
    else:
        frame.show(render_list(), plain=plain)
        while sys.stdin.isatty() and (chosen := _ask(f"Which one? 1 to {len(FAILURES)}; Enter ends")):
            _show(_find(chosen), plain)
    return 0


def _ask(question: str) -> str:
    return str(typer.prompt(question, default="", show_default=False, err=True)).strip()


def _find(name: str) -> Failure:
    """The failure with this name or number; GpudocError if there is none."""
    from gpudoc.errors import GpudocError
    from gpudoc.knowledge.failures import FAILURES

    for number, failure in enumerate(FAILURES, 1):
        if name in (failure.name, str(number)):
            return failure
    names = ", ".join(failure.name for failure in FAILURES)
    raise GpudocError(f"no such demo: {name!r}", hint=f"gpudoc demo NAME, with one of: {names}")


def _show(failure: Failure, plain: bool, *, goes_on: bool = False) -> None:
    """Show the failure and the answer to it; if it cannot run here, say why and, in a tour, go on."""
    from gpudoc.errors import GpudocError
    from gpudoc.render import console, frame
    from gpudoc.render.demo import render_answer, render_question

    frame.show(render_question(failure), plain=plain)
    if not failure.is_job:
        frame.show(render_answer(failure, frame.form(plain)), plain=plain)
    else:
        from gpudoc.cli.watching import watch_demo

        try:
            watch_demo(failure.text, plain=plain)
        except GpudocError as problem:
            if not goes_on:
                raise
            console.print_lines(f"  not shown: {problem.message}\n    try: {problem.hint}")
    console.print_lines("")
