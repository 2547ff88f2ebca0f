"""The `gpudoc clean` command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gpudoc.profile.inventory import Kept

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking.")]


def clean(yes: Yes = False) -> int:
    """Remove what gpudoc keeps on this machine: your profiles, journals of searches, what killed runs left behind.

    Lists every file and asks first. Run folders and the profiles in a project's .gpudoc/profiles stay.

    Example: gpudoc clean
    """
    from gpudoc.profile.inventory import find_kept, remove
    from gpudoc.render.console import print_lines

    found = find_kept()
    free = [one for one in found if not one.stays]
    if not _agreed(found, free, yes):
        return 0
    problems = [problem for problem in map(remove, free) if problem]
    for problem in problems:
        print_lines(f"not removed: {problem}")
    print_lines(f"Removed {len(free) - len(problems)} of {len(free)}.")
    return 1 if problems else 0


def _agreed(found: list[Kept], free: list[Kept], yes: bool) -> bool:
    """Show the files and return whether they may be removed; GpudocError if stdin is not a terminal."""
    import sys

    from gpudoc.errors import GpudocError
    from gpudoc.render.console import print_lines
    from gpudoc.units import format_bytes

    for one in found:
        print_lines(one.line + (f"; stays: {one.stays}" if one.stays else ""))
    if not free:
        print_lines("Nothing to remove.")
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        raise GpudocError("clean asks first, and stdin is not a terminal", hint="gpudoc clean --yes")
    size = format_bytes(sum(one.num_bytes for one in free))
    agreed = typer.confirm(f"Remove {'these ' * (len(free) > 1)}{len(free)} ({size})?")
    if not agreed:
        print_lines("Nothing was removed.")
    return agreed
