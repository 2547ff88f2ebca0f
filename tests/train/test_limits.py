"""A memory limit is real, and one that cannot be kept is refused."""

import subprocess
import sys

import pytest
import torch

from gpudoc.train import limits
from tests.train.support import environment

CHILD = """
import sys, torch
from gpudoc.process.memory import lift_limit, read_process_memory
from gpudoc.train import limits
before = read_process_memory().data_bytes
limits.apply(before + (256 << 20), torch.device("cpu"))
kept = torch.empty(64 << 20, dtype=torch.uint8)
try:
    torch.empty(1 << 30, dtype=torch.uint8)
    sys.exit("the limit did not hold")
except RuntimeError as problem:
    assert "can't allocate memory" in str(problem), problem
lift_limit()
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


def test_a_system_that_has_no_such_limit_is_left_as_it_is(monkeypatch):
    def unknown():
        raise FileNotFoundError("/proc/self/status")

    monkeypatch.setattr(limits, "read_process_memory", unknown)
    monkeypatch.setattr(limits, "limit_memory", lambda limit_bytes: pytest.fail("it was limited"))
    limits.apply(1 << 20, torch.device("cpu"))


@pytest.mark.parametrize(("limit", "share"), [(20, 0.25), (80, 1.0), (200, 1.0)])
def test_on_a_card_tensors_get_its_share_and_never_more_than_the_whole(monkeypatch, limit, share):
    shares = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: type("Card", (), {"total_memory": 80}))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda part, device: shares.append(part))
    limits.apply(limit, torch.device("cuda:0"))
    assert shares == [share]


def test_without_a_limit_half_of_what_is_free_is_taken(monkeypatch):
    monkeypatch.setattr(limits, "memory_free_bytes", lambda: 100)
    assert limits.default_limit_bytes() == 50
    monkeypatch.setattr(limits, "memory_free_bytes", lambda: limits.Absent("no /proc"))
    assert limits.default_limit_bytes() is None
