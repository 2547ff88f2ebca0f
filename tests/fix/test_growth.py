"""The function of `growth-by-copy` gives the rows that a copy of all rows gives, and changes no older ones."""

from __future__ import annotations

import ast
import gc
import weakref

import numpy as np
import pytest
import torch

from tests.fix.scripts_of_rewrites import FOLDER


def helper_of(name):
    """The function of a changed script and its table, run by themselves."""
    tree = ast.parse((FOLDER / "growth-by-copy" / name).read_text("utf-8"))
    tree.body = [one for one in tree.body if "_ROOMS" in ast.unparse(one) and not isinstance(one, ast.ClassDef)]
    names = {"weakref": weakref, "np": np, "torch": torch}
    exec(compile(tree, name, "exec"), names)
    return names["grown"], names["_ROOMS"]


def whole(rows, new, most):
    join = np.concatenate if isinstance(rows, np.ndarray) else torch.cat
    return join([rows, new])[-most if most else 0 :]


@pytest.mark.parametrize("name", ["after.py", "after_torch.py"])
@pytest.mark.parametrize("most", [None, 1, 3, 7, 50])
def test_rows_are_those_of_a_copy_and_older_arrays_stay(name, most):
    grown, rooms = helper_of(name)
    random = np.random.default_rng(0)
    is_numpy = name == "after.py"
    made, copied = (np.asarray, np.copy) if is_numpy else (torch.as_tensor, torch.clone)
    rows = found = made(np.zeros((3, 2)))
    older = []
    for _ in range(80):
        new = made(random.random((random.integers(0, 4), 2)))
        older.append((found, copied(found)))
        # an array that grew once already grows a second time: the first result keeps its rows
        if random.random() < 0.2:
            other = grown(found, made(random.random((1, 2))), most)
            older.append((other, copied(other)))
        rows, found = whole(rows, new, most), grown(found, new, most)
        assert found.shape == rows.shape
        assert bool((found == rows).all())
    assert all(bool((one == copy).all()) for one, copy in older)
    del older, found, other, rows
    gc.collect()
    assert not rooms
