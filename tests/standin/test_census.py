"""The memory of a step on a GPU by what it is for, against what PyTorch's allocator counted in the whole run."""

from __future__ import annotations

import pytest

from gpudoc.units import MIB
from tests.standin.test_times import run
from tests.train.support import summary

pytestmark = pytest.mark.standin

FLOAT = 4
HIDDEN = 1_000_000
# 8 numbers to a million to 1, in batches of 12
WEIGHTS = (8 * HIDDEN + HIDDEN + HIDDEN + 1) * FLOAT
LAYER = 12 * HIDDEN * FLOAT


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_parts_are_those_of_the_net_and_their_sum_is_the_allocators_peak(standin, tmp_path, ranks):
    gpus = standin(gpus=ranks, clock="virtual", memory="2G")
    done, _ = run(gpus, "--steps", 6, model={"hidden": HIDDEN}, global_batch=12 * ranks)
    found = summary(tmp_path / "run")
    memory = found["memory"]
    sizes = memory["bytes"]
    assert sum(sizes.values()) == memory["peak_bytes"]
    # every step needs the same, and the allocator's own counter says how much
    assert memory["peak_bytes"] == pytest.approx(found["memory_peak_bytes"], rel=0.01)
    assert sizes["weights"] == pytest.approx(WEIGHTS, abs=4096)
    assert sizes["optimizer"] == pytest.approx(2 * WEIGHTS, abs=8192)
    # ReLU's result is kept by the net itself, whose forward pass has no module for it
    (most, *_) = memory["activations"]
    assert (most["module"], most["bytes"]) == ("Net", pytest.approx(LAYER, abs=4096))
    assert memory["reserved_bytes"] - memory["peak_bytes"] == memory["fragmentation_bytes"] < 64 * MIB
    assert "memory in step 3: " in done.stdout
