"""What the help says of a setting, beside its name: read by the command line, and by nothing that runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """A setting as an option of a command: what it does, what stands for its value, other names than its own."""

    help: str
    metavar: str | None = None
    names: tuple[str, ...] = ()
