"""Finds the cause that a failed test of another tool points to; None for a test that no row knows."""

from __future__ import annotations

from typing import cast

from gpudoc.knowledge.tables import read_table


def cause_of_test(name: str, message: str) -> tuple[str, float] | None:
    """The cause's id and how surely the test alone shows it; None if neither its name nor its message is known."""
    said = message.lower()
    for row in read_table("device_tests.yaml", "messages"):
        if any(str(word) in said for word in cast(list[object], row["words"])):
            return str(row["cause"]), float(str(row["sure"]))
    for row in read_table("device_tests.yaml", "tests"):
        if name in cast(list[object], row["names"]):
            return str(row["cause"]), float(str(row["sure"]))
    return None
