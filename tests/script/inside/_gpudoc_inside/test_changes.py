"""A data set that was changed between epochs is found out by its fields, and one that was only read is not."""

from __future__ import annotations

import numpy
import pytest
import torch

from gpudoc.script.inside._gpudoc_inside.bounds import difference, fingerprint


class Inner:
    def __init__(self):
        self.level = 1


class Held:
    def __init__(self):
        self.epoch = 0
        self.rows = [1, 2]
        self.names = {"a": 1}
        self.table = torch.zeros(3)
        self.array = numpy.zeros(3)
        self.transform = Inner()


CHANGES = {
    "epoch": lambda held: setattr(held, "epoch", 1),
    "rows": lambda held: held.rows.append(3),
    "names": lambda held: held.names.update(b=2),
    "table": lambda held: held.table.add_(1),
    "array": lambda held: held.array.__setitem__(0, 5),
    "transform": lambda held: setattr(held.transform, "level", 2),
    "added": lambda held: setattr(held, "added", 1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen_and_named(name):
    held = Held()
    before = fingerprint(held)
    CHANGES[name](held)
    assert difference(before, fingerprint(held)) == name


def test_what_was_only_read_is_equal():
    held = Held()
    before = fingerprint(held)
    held.table.sum(), held.array.sum(), held.rows[0]
    assert fingerprint(held) == before
    assert fingerprint(range(3)) == {}
