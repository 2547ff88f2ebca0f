"""Whether a GPU's NVLinks are part of its board or need a bridge, by its name; an unknown name says neither."""

from __future__ import annotations

import re

from gpudoc.knowledge.tables import read_list


def is_on_board(name: str) -> bool | None:
    """True for a GPU on a board that links it, False for a card that a bridge may join; None if the name is silent."""
    words = set(re.findall(r"[a-z0-9]+", name.lower()))
    if words & set(read_list("nvlink_boards.yaml", "bridged")):
        return False
    return True if words & set(read_list("nvlink_boards.yaml", "board")) else None
