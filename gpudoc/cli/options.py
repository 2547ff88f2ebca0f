"""The parts that commands share: the invocation, and the options that mean the same everywhere."""

from __future__ import annotations

import dataclasses
import faulthandler
import functools
import inspect
import os
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

import typer

from gpudoc.frozen import dataclass
from gpudoc.option import Option

# the packages that bench, tune and train import but doctor does not
_FOR_TRAINING = ("torch", "numpy", "safetensors")


def require_training(command: str) -> None:
    """Raise GpudocError with install commands if packages for bench, tune and train are missing; imports none."""
    from importlib.util import find_spec

    from gpudoc.errors import GpudocError
    from gpudoc.own_files import ARCHIVE, IN_ARCHIVE, INSTALL

    if IN_ARCHIVE:
        raise GpudocError(f"gpudoc {command} starts other Pythons, which cannot import it from {ARCHIVE}", hint=INSTALL)
    missing = [name for name in _FOR_TRAINING if find_spec(name) is None]
    if not missing:
        return
    from gpudoc.doctor.model import Evidence
    from gpudoc.doctor.remedies import advise
    from gpudoc.doctor.setting import WORDS, describe
    from gpudoc.facts.collection import collect

    setting = describe(Evidence(source="machine", machine=collect(quick=True)))
    steps = [advise("torch_wheel")(setting)[0].run] if "torch" in missing else []
    others = [name for name in missing if name != "torch"]
    steps += [f"{WORDS['install'](setting)} {' '.join(others)}"] if others else []
    raise GpudocError(
        f"gpudoc {command} needs {', '.join(missing)}, which is not installed in this Python: {sys.executable}",
        hint=" && ".join(steps),
    )


def import_torch(needed: bool, quiet: bool) -> None:
    """Import torch if it is needed; a terminal shows progress during those seconds."""
    from gpudoc.doctor.spinning import bound_spinning

    # the runtime reads this setting once, with torch: here, or in the ranks started from here
    bound_spinning()
    if not needed:
        return
    require_training("train")
    from gpudoc.errors import GpudocError
    from gpudoc.process.imports import ASK_DOCTOR, torch_fails, uncollected
    from gpudoc.render.live import Live

    # if several ranks share a terminal, only the first one shows progress
    with Live(plain=quiet or os.environ.get("RANK", "0") != "0") as progress, uncollected():
        progress.advance(0.0, 0.0, "importing PyTorch")
        # print the place if torch kills this process
        place = None if faulthandler.is_enabled() else sys.__stderr__
        if place is not None:
            faulthandler.enable(place)
        try:
            import torch  # noqa: F401
        except Exception as problem:
            said = torch_fails(f"{type(problem).__name__}: {problem}")
            raise GpudocError(said, hint=ASK_DOCTOR) from None

        if place is not None:
            faulthandler.disable()


@dataclass(frozen=True, slots=True)
class Invocation:
    """The part of the command line after gpudoc's own options: the command after the first `--`."""

    command: tuple[str, ...] = ()


class Spoken(str, Enum):
    """The languages that doctor speaks."""

    en = "en"
    zh = "zh"
    ru = "ru"


AnswerLanguage = Annotated[
    Spoken | None, typer.Option("--language", help="Answer in this language instead of the language of the text.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document on stdout.")]
PlainFlag = Annotated[
    bool,
    typer.Option("--plain", envvar="GPUDOC_PLAIN", help="Use no colour or animation, and words instead of symbols."),
]
VerboseFlag = Annotated[bool, typer.Option("--verbose", "-v", help="Show everything, not only the first screen.")]
OutFile = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the result to this file.")]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a self-contained page to this file.")
]
SarifFile = Annotated[
    Path | None, typer.Option("--sarif", metavar="FILE", help="Write SARIF 2.1.0, for code scanning and editors.")
]
SharedFlag = Annotated[bool, typer.Option("--shared", help="Continue even while other processes use the GPU.")]
DeviceName = Annotated[
    str, typer.Option("--device", metavar="NAME", help="Use this device: auto, cpu, cuda or cuda:N.")
]


def complete_cause(incomplete: str) -> list[str]:
    """The ids of causes that begin with `incomplete`, for the shell's completion."""
    from gpudoc.doctor.registry import CATALOGUE

    return sorted(cause_id for cause_id in CATALOGUE if cause_id.startswith(incomplete))


IgnoredCauses = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore", metavar="ID", autocompletion=complete_cause, help="Leave out this cause; may be repeated."
    ),
]


def with_options(kind: type[object]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Turn the parameter `options`, a record of the dataclass `kind`, into an option for each field with a help text.

    The command's own options follow them.
    """
    return functools.partial(_read_options, kind)


def _read_options(kind: type[object], command: Callable[..., int]) -> Callable[..., int]:
    fields = {}
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        _, *notes = get_args(hints[field.name]) if get_origin(hints[field.name]) is Annotated else (None,)
        for note in notes:
            if isinstance(note, Option):
                value = get_args(hints[field.name])[0]
                # a switch has no negative form
                names = note.names or ((f"--{field.name.replace('_', '-')}",) if value is bool else ())
                option = typer.Option(*names, metavar=note.metavar, help=note.help)
                fields[field.name] = (Annotated[value, option], field.default)
    own = inspect.signature(command, eval_str=True).parameters
    plain = {name: (parameter.annotation, parameter.default) for name, parameter in own.items() if name != "options"}
    typed = {name: given for name, given in plain.items() if given[1] is inspect.Parameter.empty} | fields | plain

    @functools.wraps(command)
    def call(**given: object) -> int:
        read = {name: given.pop(name) for name in fields}
        return command(options=kind(**read), **given)

    kinds = {name: annotation for name, (annotation, _) in typed.items()}
    call.__annotations__ = {**kinds, "return": int}
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in typed.items()
        ]
    )
    return call
