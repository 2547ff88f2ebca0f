import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer

from gpudoc.cli.options import Invocation, with_options
from gpudoc.option import Option


def test_nothing_after_the_dashes_is_an_empty_command():
    assert Invocation().command == ()


@pytest.mark.parametrize(
    ("typed", "offers"),
    [
        ("gpudoc cl", {"clean"}),
        ("gpudoc tune --bud", {"--budget"}),
        ("gpudoc doctor --explain driver_too", {"driver_too_old"}),
    ],
)
def test_the_shell_completes_commands_options_and_causes(typed, offers):
    done = subprocess.run(
        [sys.executable, "-c", "from gpudoc.cli.app import main; main()"],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split()) - 1),
            "_GPUDOC_COMPLETE": "complete_bash",
        },
    )
    assert set(done.stdout.split()) == offers


@dataclass(frozen=True, kw_only=True)
class Asked:
    goal: Annotated[str, Option("What is wanted.", "GOAL")] = "speed"
    most: Annotated[int | None, Option("At most this many.", "N", ("--most", "--up-to"))] = None
    to_file: Annotated[Path | None, Option("Write here.", "FILE")] = None
    again: Annotated[bool, Option("Once more.")] = False
    words: tuple[str, ...] = ("kept",)


@pytest.fixture
def call():
    app, seen = typer.Typer(), []

    @with_options(Asked)
    def command(context: typer.Context, options: Asked, loud: Annotated[bool, typer.Option("--loud")] = False) -> int:
        seen.append((context.obj, options, loud))
        return 0

    app.command()(command)

    def run(*arguments):
        app(args=list(arguments), obj="here", standalone_mode=False)
        return seen.pop()

    return run


def test_the_fields_of_a_record_are_the_options_of_a_command(call):
    assert call() == ("here", Asked(), False)
    typed = call("--up-to", "3", "--to-file", "a/b", "--again", "--goal", "size", "--loud")
    assert typed == ("here", Asked(goal="size", most=3, to_file=Path("a/b"), again=True), True)


@pytest.mark.parametrize("words", [("--words", "x"), ("--no-again",)])
def test_what_no_field_offers_is_refused(call, words):
    with pytest.raises(Exception, match="No such option"):
        call(*words)


def test_the_help_is_that_of_the_fields(call, capsys):
    with pytest.raises(IndexError):
        call("--help")
    said = " ".join(capsys.readouterr().out.split())
    assert "What is wanted." in said
    assert "GOAL" in said
    assert "words" not in said
