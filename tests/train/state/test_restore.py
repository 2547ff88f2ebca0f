"""A checkpoint is read back as it was written, or refused in one sentence."""

from __future__ import annotations

import pytest
import torch

from gpudoc.errors import GpudocError
from gpudoc.train.state import checkpoint
from gpudoc.train.state.restore import load
from tests.train.state.test_checkpoint import content


def test_what_was_written_comes_back(tmp_path):
    path = checkpoint.write(tmp_path, content(3))
    assert checkpoint.verify(path) is None
    loaded = load(path)
    assert loaded.state["step"] == 3
    assert torch.equal(loaded.model["weight"], torch.full((100,), 3.0))
    assert loaded.rng(0) is not None
    assert loaded.rng(1) is None


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(GpudocError, match="not a checkpoint of this gpudoc: FileNotFoundError"):
        load(tmp_path)
