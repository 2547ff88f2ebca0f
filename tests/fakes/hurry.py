"""Deadlines that pass soon after the question that hangs was asked, so that nobody waits for the rest of them."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pytest

from gpudoc.facts.children import Child


@contextmanager
def hurried(hanging: Collection[str], patience_s: float = 1.0) -> Iterator[None]:
    """A child that asks one of `hanging` is given up `patience_s` later, unless it has asked something else by then."""
    take_line = Child._take_line

    def take(child: Child, line: bytes) -> None:
        take_line(child, line)
        if child.asking in hanging:
            child.heard = time.monotonic() - child.deadline_s + patience_s

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Child, "_take_line", take)
        yield


@contextmanager
def slow(question: str, seconds: float) -> Iterator[None]:
    """Each answer to `question` comes `seconds` later by the clock of the deadlines, without a wait."""
    take_line = Child._take_line

    def take(child: Child, line: bytes) -> None:
        asked = child.asking == question
        take_line(child, line)
        if asked:
            child.began -= seconds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Child, "_take_line", take)
        # the deadline passes while the child may still run, which on a busy machine would be no silence
        patch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
        yield
