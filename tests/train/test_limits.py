"""A memory limit is real, and lifted where a fork would count what its parent held."""

import os
import subprocess
import sys

import pytest
import torch

from gpudoc.train import limits
from gpudoc.train.limits import EXPANDABLE, allocator_environment
from tests.train.support import environment

CHILD = """
import sys, torch
from gpudoc.train import limits
before = limits.read_process_memory().data_bytes
limits.apply(before + (256 << 20), torch.device("cpu"))
kept = torch.empty(64 << 20, dtype=torch.uint8)
try:
    torch.empty(1 << 30, dtype=torch.uint8)
    sys.exit("the limit did not hold")
except RuntimeError as problem:
    assert "can't allocate memory" in str(problem), problem
limits.lift_in_worker()
torch.empty(1 << 30, dtype=torch.uint8)
print("held and lifted")
"""


def test_allocations_beyond_the_limit_fail_and_the_limit_can_be_lifted():
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=environment(), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.strip() == "held and lifted", done.stderr


def test_a_limit_below_what_is_held_is_refused_with_a_larger_one():
    with pytest.raises(limits.GpudocError, match="already holds") as caught:
        limits.apply(1 << 20, torch.device("cpu"))
    assert caught.value.hint.startswith("--memory-limit ")
    assert caught.value.exit_code == 1


ROOM = """
import torch
from gpudoc.train import limits
assert limits.room_bytes() is None
limits.apply(limits.read_process_memory().peak_data_bytes + (256 << 20), torch.device("cpu"))
before = limits.room_bytes()
kept = torch.empty(96 << 20, dtype=torch.uint8)
del kept
print(before >> 20, 95 <= (before - limits.room_bytes()) >> 20 <= 97)
"""


def test_the_room_is_what_the_limit_leaves_above_the_highest_need_so_far():
    done = subprocess.run(
        [sys.executable, "-c", ROOM], env=environment(), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.split() in (["256", "True"], ["255", "True"]), done.stdout + done.stderr


def test_without_a_limit_half_of_what_is_free_is_taken():
    limit, total = limits.default_limit_bytes(), limits.total_bytes()
    assert 0 < limit < total


def test_an_allocators_environment_is_what_is_still_missing(monkeypatch):
    for name in limits.MALLOC_ENVIRONMENT["exact"]:
        monkeypatch.delenv(name, raising=False)
    wanted = allocator_environment("exact", "cpu")
    assert wanted["MALLOC_ARENA_MAX"] == "1"
    monkeypatch.setattr(os, "environ", {**os.environ, **wanted})
    assert allocator_environment("exact", "cpu") == {}
    assert allocator_environment("default", "cpu") == {}


@pytest.mark.parametrize("given", ["", "garbage_collection_threshold:0.8"])
def test_expandable_segments_are_added_to_what_the_user_set(monkeypatch, given):
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", given)
    (value,) = allocator_environment("expandable", "cuda").values()
    assert value.split(",")[-1] == EXPANDABLE
    assert value.startswith(given)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", value)
    assert allocator_environment("expandable", "cuda") == {}
