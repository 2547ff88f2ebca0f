"""How many NVLinks should be up on a GPU, and what connects them; None, not a guess, if the table lacks the answer."""

from __future__ import annotations

import functools
from typing import cast

from gpudoc.frozen import dataclass
from gpudoc.knowledge.tables import read_list, read_table
from gpudoc.patterns import Pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlinks:
    """The links of one model; with `to_switches`, all of them are up no matter which other GPUs are visible."""

    links: int
    to_switches: bool


def find_nvlinks(name: str) -> Nvlinks | None:
    """The links of the model that NVML calls `name`, or None when the table does not have it."""
    return _models().get(name.removeprefix("NVIDIA ").removeprefix("Tesla "))


def is_on_board(name: str) -> bool | None:
    """True for a GPU on a board that links it, False for a card that a bridge may join; None if the name is unclear."""
    words = set(Pattern(r"[a-z0-9]+").findall(name.lower()))
    if words & set(read_list("nvlinks.yaml", "bridged")):
        return False
    return True if words & set(read_list("nvlinks.yaml", "board")) else None


@functools.cache
def _models() -> dict[str, Nvlinks]:
    rows = read_table("nvlinks.yaml", "nvlinks")
    return {
        str(name): Nvlinks(links=int(str(row["links"])), to_switches=row["to"] == "switches")
        for row in rows
        for name in cast(list[object], row["names"])
    }
