"""The kernel enforces the limit, it can be lifted, and the room below it is what the peak leaves."""

import subprocess
import sys

import pytest

from gpudoc.process import memory


def lines_of(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_limit_is_enforced_by_the_kernel_and_can_be_lifted():
    script = """
from gpudoc.process import memory
before = memory.read_process_memory().data_bytes
memory.limit_memory(before + (64 << 20))
try:
    bytearray(128 << 20)
    print("allocated")
except MemoryError:
    print("refused")
memory.lift_limit()
kept = bytearray(128 << 20)
after = memory.read_process_memory()
print(after.peak_data_bytes - before >= 128 << 20, after.data_bytes <= after.peak_data_bytes)
"""
    assert lines_of(script) == ["refused", "True", "True"]


def test_a_limit_above_the_hard_one_is_the_hard_one():
    script = """
import resource
from gpudoc.process import memory
resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))
memory.limit_memory(8 << 30)
print(*resource.getrlimit(resource.RLIMIT_DATA))
"""
    assert lines_of(script) == [str(4 << 30)] * 2


def test_the_room_is_what_the_limit_leaves_above_the_highest_need_so_far():
    script = """
from gpudoc.process import memory
print(memory.room_bytes())
memory.limit_memory(memory.read_process_memory().peak_data_bytes + (256 << 20))
before = memory.room_bytes()
kept = bytearray(96 << 20)
del kept
print(255 <= before >> 20 <= 256, 95 <= (before - memory.room_bytes()) >> 20 <= 97)
"""
    assert lines_of(script) == ["None", "True", "True"]


def test_a_system_that_does_not_tell_the_peak_is_an_error_and_no_number(monkeypatch):
    monkeypatch.setattr(memory.Path, "read_text", lambda self: "VmSize:\t 12 kB\nVmData:\t 8 kB\n")
    with pytest.raises(OSError, match="VmPeak"):
        memory.read_process_memory()
