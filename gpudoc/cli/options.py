"""What the commands share: the invocation and the options that mean the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True, slots=True)
class Invocation:
    """What the command line carried besides its own options: the command after the first `--`."""

    command: tuple[str, ...] = ()


JsonFlag = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document on stdout.")]
PlainFlag = Annotated[
    bool,
    typer.Option("--plain", envvar="GPUDOC_PLAIN", help="No colour, no animation, marks as words: for screen readers."),
]
VerboseFlag = Annotated[bool, typer.Option("--verbose", "-v", help="Show everything, not only the first screen.")]
OutFile = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the result to this file.")]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a self-contained page to this file.")
]
SharedFlag = Annotated[bool, typer.Option("--shared", help="Go on though others compute on the GPU.")]
DeviceName = Annotated[str, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda or cuda:N.")]
