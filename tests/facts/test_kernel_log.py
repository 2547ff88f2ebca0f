from __future__ import annotations

import os
import tracemalloc

import pytest

from gpudoc.facts import kernel_log
from gpudoc.facts.model import Absent


@pytest.mark.parametrize(
    ("line", "kind", "code", "address"),
    [
        (
            "[  900.512345] NVRM: Xid (PCI:0000:17:00): 79, pid=1234, GPU has fallen off the bus.",
            "xid",
            79,
            "0000:17:00",
        ),
        ("NVRM: Xid (0000:03:00): 31, Ch 00000010, engmask 00000101", "xid", 31, "0000:03:00"),
        ("kernel: NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", "fallen_off_bus", None, "0000:3b:00.0"),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32", "sxid", 12028, "0000:c1:00.0"),
        ("nvidia 0000:17:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer", "aer", None, "0000:17:00.0"),
        ("Out of memory: Killed process 4242 (python) total-vm:1kB", "oom_kill", None, None),
        ("Memory cgroup out of memory: Killed process 77 (pt_data_worker)", "oom_kill", None, None),
        ("NVRM: API mismatch: the client has the version 550.120", "api_mismatch", None, None),
        ("[    5.1] Loading of unsigned module is rejected", "module_rejected", None, None),
        ("[ 5000.1] PM: suspend exit", "resume", None, None),
        ("NVRM: GPU 0000:17:00.0: RmInitAdapter failed! (0x24:0x65:1589)", "gsp", None, "0000:17:00.0"),
        ("NVRM: _kgspIsHeartbeatTimedOut: GSP heartbeat timeout", "gsp", None, None),
        ("NVRM: BAR1 is 0M @ 0x0 (PCI:0000:10:00.0)", "bar", None, "0000:10:00.0"),
        ("NVRM: The system BIOS may have misconfigured your GPU.", "bar", None, None),
        ("NVRM: installed in this system requires use of the NVIDIA open kernel modules.", "kind", None, None),
        (
            "NVRM: The NVIDIA GPU 0000:17:00.0 (PCI ID: 10de:1b06) is not supported by open nvidia.ko",
            "kind",
            None,
            "0000:17:00.0",
        ),
        ("pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:17:00.0", "aer", None, "0000:17:00.0"),
        ("NVRM: Xid (PCI:0000:c3:00): 45, pid=81, Ch 3 caused by previous Xid 145", "xid", 145, "0000:c3:00"),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.65.06", "module_loaded", None, None),
        ("NVRM: something new", "nvrm", None, None),
    ],
)
def test_a_line_is_read_for_what_it_says(line, kind, code, address):
    event = kernel_log.parse_line(line)
    assert event.kind == kind
    assert (None if isinstance(event.code, Absent) else event.code) == code
    assert (None if isinstance(event.pci_address, Absent) else event.pci_address) == address


def test_the_time_since_boot_is_kept():
    assert kernel_log.parse_line("[  900.512345] NVRM: Xid (PCI:0000:17:00): 79").time_s == 900.512345
    assert isinstance(kernel_log.parse_line("NVRM: x").time_s, Absent)


def test_lines_about_other_things_are_no_events():
    assert kernel_log.parse(["usb 1-1: new device", "", "EXT4-fs mounted"]) == ()


def test_the_log_is_read_from_its_file(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text("[ 1.0] usb\n[ 2.0] NVRM: Xid (PCI:0000:17:00): 48, pid=1\n")
    (event,) = kernel_log.collect(tmp_path)
    assert event.code == 48


def test_no_log_is_absent_not_empty(tmp_path):
    assert kernel_log.collect(tmp_path) == Absent("no such file: /dev/kmsg")


def test_no_permission_is_said(tmp_path, monkeypatch):
    import os

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "open", refuse)
    assert kernel_log.collect(tmp_path) == Absent("no permission to read the kernel log (try: sudo dmesg)")


def journal_of(tmp_path, monkeypatch, script):
    """A journal that prints what the script does."""
    program = tmp_path / "journalctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_of_a_long_journal_the_newest_lines_are_kept(tmp_path, monkeypatch):
    lines = "seq 1 3000 | sed 's/^/[    1.000000] kernel: line /'"
    journal_of(tmp_path, monkeypatch, f"{lines}\nhead -c 100000 /dev/zero | tr '\\0' x")
    monkeypatch.setattr(kernel_log, "_MOST_LINES", 20)
    lines = kernel_log._journal()
    assert len(lines) == 20
    assert max(map(len, lines)) <= 8_192
    assert lines[0].endswith(b"kernel: line 2994\n")


# what all of it may take together, read, decoded and parsed: the lines, and the newest events in them
MOST_MEMORY = 64 << 20


def test_a_journal_of_the_longest_lines_takes_little_memory_and_its_newest_event_is_there(tmp_path, monkeypatch):
    # 20,000 lines of 8 KiB, each an event: 164 MB
    line = "[    1.000000] NVRM: Xid (PCI:0000:17:00): 31, " + "x" * 8_100
    journal_of(tmp_path, monkeypatch, f"yes '{line}' | head -n 20000\necho '[ 2.0] NVRM: Xid (PCI:0000:17:00): 79'")
    monkeypatch.setattr(kernel_log, "_ring_buffer", lambda root: Absent("no permission"))
    tracemalloc.start()
    events = kernel_log.collect()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert events[-1].code == 79
    assert {event.code for event in events[:-1]} == {31}
    assert peak < MOST_MEMORY


def test_a_ring_buffer_that_fills_faster_than_it_is_read_comes_to_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_log, "_MOST_READ", 20_000)
    monkeypatch.setattr(os, "read", lambda handle, most: b"6,1,2000000,-;NVRM: Xid (PCI:0000:17:00): 31".ljust(most))
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    tracemalloc.start()
    events = kernel_log.collect(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {(event.code, event.time_s) for event in events} == {(31, 2.0)}
    assert peak < MOST_MEMORY


def test_of_very_many_events_the_newest_are_kept():
    lines = [f"NVRM: Xid (PCI:0000:17:00): {number % 900}" for number in range(10_100)]
    events = kernel_log.parse(lines)
    assert len(events) == 10_000
    assert (events[0].code, events[-1].code) == (100, 199)
