"""The help text of a setting, kept with its name; only the command line reads it."""

from __future__ import annotations

from gpudoc.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """A setting as an option of a command: its help, the placeholder for its value, and names besides its own."""

    help: str
    metavar: str | None = None
    names: tuple[str, ...] = ()
