import os
import subprocess
import sys

import pytest

from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent
from gpudoc.tune.trial import limit
from gpudoc.units import MIB


def test_the_limit_is_enforced_by_the_kernel_and_can_be_lifted():
    script = """
from gpudoc.tune.trial import limit
before = limit.read_process_memory().data_bytes
limit.apply_data_limit(before + (64 << 20))
try:
    bytearray(128 << 20)
    print("allocated")
except MemoryError:
    print("refused")
limit.lift_data_limit()
kept = bytearray(128 << 20)
after = limit.read_process_memory()
print(after.peak_data_bytes - before >= 128 << 20, after.data_bytes <= after.peak_data_bytes)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["refused", "True", "True"]


def test_what_is_free_is_the_smaller_of_machine_and_cgroup(monkeypatch):
    monkeypatch.setattr(limit, "memory_available_bytes", lambda: 800 * MIB)
    monkeypatch.setattr(limit, "memory_headroom_bytes", lambda: 300 * MIB)
    assert limit.free_host_bytes() == 300 * MIB
    monkeypatch.setattr(limit, "memory_headroom_bytes", lambda: Absent("no limit"))
    assert limit.free_host_bytes() == 800 * MIB
    monkeypatch.setattr(limit, "memory_available_bytes", lambda: Absent("no /proc"))
    with pytest.raises(GpudocError, match="cannot be read"):
        limit.free_host_bytes()


def test_each_allocator_has_its_environment():
    assert limit.allocator_environment("default") == {}
    assert limit.allocator_environment("exact")["MALLOC_ARENA_MAX"] == "1"
    assert "expandable_segments" in limit.allocator_environment("expandable")["PYTORCH_CUDA_ALLOC_CONF"]


@pytest.mark.parametrize("on_gpu", [True, False])
def test_a_system_that_cannot_fork_is_told_where_tune_works(monkeypatch, on_gpu):
    limit.check_system(on_gpu)
    monkeypatch.delattr(os, "fork")
    with pytest.raises(GpudocError, match="by fork") as caught:
        limit.check_system(on_gpu)
    assert "WSL" in caught.value.hint


def test_a_cpu_without_a_limit_of_memory_is_not_tuned(monkeypatch):
    monkeypatch.setattr(limit.Path, "exists", lambda self: str(self) != "/proc/self/status")
    limit.check_system(on_gpu=True)
    with pytest.raises(GpudocError, match="only Linux"):
        limit.check_system(on_gpu=False)


def test_kills_of_the_cgroup_are_counted(monkeypatch, tmp_path):
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    monkeypatch.setattr(limit, "_cgroup_folders", lambda: [tmp_path])
    assert limit.cgroup_oom_kills() == 2
