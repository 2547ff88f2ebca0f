"""How many NVLinks should be up on a GPU; a model that the table lacks has no number rather than a guessed one."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import cast

from gpudoc.knowledge.tables import read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlinks:
    """The links of one model; `to_switches` says that all of them are up whatever other GPUs can be seen."""

    links: int
    to_switches: bool


def find_nvlinks(name: str) -> Nvlinks | None:
    """The links of the model that NVML calls `name`, or None when the table does not have it."""
    return _models().get(name.removeprefix("NVIDIA ").removeprefix("Tesla "))


@functools.cache
def _models() -> dict[str, Nvlinks]:
    rows = read_table("nvlinks.yaml", "nvlinks")
    return {
        str(name): Nvlinks(links=int(str(row["links"])), to_switches=row["to"] == "switches")
        for row in rows
        for name in cast(list[object], row["names"])
    }
