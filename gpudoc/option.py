"""The help text of a setting, kept with its name; only the command line reads it."""

from __future__ import annotations

from gpudoc.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """A setting as an option of a command: what it does, what stands for its value, other names than its own."""

    help: str
    metavar: str | None = None
    names: tuple[str, ...] = ()
