"""The lines of the kernel log that matter to a GPU, parsed once for the live log and for pasted ones."""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from gpudoc.facts.container import ROOT
from gpudoc.facts.files import WITHOUT_WAITING, read_text
from gpudoc.facts.model import Absent, Fact, KernelEvent
from gpudoc.patterns import Pattern

# of a journal of months the newest lines; a record of the kernel is at most 8 KiB
_MOST_LINES, _LONGEST_LINE = 50_000, 8_192

_ADDRESS = r"(?:PCI:)?(?P<address>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
# a channel that was cleared away names the event that began it
_EARLIER = Pattern(r"caused by previous Xid\s+(\d{1,3})\b")
_TIME = Pattern(r"\[\s*(?P<time>\d+\.\d{3,6})\]")
_RULES: tuple[tuple[str, Pattern], ...] = (
    ("xid", Pattern(rf"NVRM: Xid(?:\s+\d+)?\s*\(\s*{_ADDRESS}\s*\)\s*:\s*(?P<code>\d+)")),
    ("sxid", Pattern(rf"SXid\s*\(\s*{_ADDRESS}\s*\)\s*:\s*(?P<code>\d+)")),
    ("fallen_off_bus", Pattern(rf"(?:NVRM: )?GPU (?:at )?{_ADDRESS}.{{0,40}}has fallen off the bus")),
    ("aer", Pattern(rf"{_ADDRESS}: (?:AER: )?PCIe Bus Error: severity=[A-Za-z() -]+")),
    ("aer", Pattern(rf"AER: .{{0,12}}[Uu]ncorrect\w+ \([\w-]+\) error .{{0,20}}(?:received:|from) ?{_ADDRESS}")),
    ("api_mismatch", Pattern(r"NVRM: API mismatch")),
    ("module_rejected", Pattern(r"(?:Loading of (?:unsigned )?module is rejected|Key was rejected by service"
                                   r"|nvidia: module verification failed|Lockdown: .{0,80}unsigned module)")),
    ("kind", Pattern(rf"NVRM: (?:The NVIDIA v?GPU {_ADDRESS} .{{0,40}})?.{{0,40}}"
                     r"(?:requires use of the NVIDIA open kernel modules|is not supported by open\b)")),
    ("bar", Pattern(rf"NVRM: (?:GPU [0-9a-f:.]+: )?BAR\d is 0M @ 0x0 \({_ADDRESS}\)")),
    ("bar", Pattern(r"NVRM: (?:This PCI I/O region assigned to your NVIDIA device is invalid"
                    r"|The system BIOS may have misconfigured your GPU|FATAL: Failed to re-allocate BAR1)")),
    ("gsp", Pattern(rf"NVRM: (?:GPU (?:at )?{_ADDRESS}: )?.{{0,120}}"
                    r"(?:GSP.{0,60}(?:timeout|heartbeat|failed)|RmInitAdapter failed)")),
    ("gsp", Pattern(r"RmInitAdapter failed")),
    ("oom_kill", Pattern(r"(?:Out of memory: Killed process|Memory cgroup out of memory: Killed process"
                            r"|oom-kill:constraint=)")),
    ("module_loaded", Pattern(r"nvidia: loading out-of-tree module|NVRM: loading NVIDIA UNIX")),
    ("resume", Pattern(r"PM: suspend exit|PM: hibernation: hibernation exit")),
    ("nvrm", Pattern(r"\bNVRM: ")),
)  # fmt: skip


def parse_line(line: str) -> KernelEvent | None:
    """What one line of a kernel log says, or None when it says nothing about GPUs, PCIe or killed processes."""
    for kind, pattern in _RULES:
        match = pattern.search(line)
        if match is None:
            continue
        groups = match.groupdict()
        time = _TIME.search(line)
        return KernelEvent(
            kind=kind,
            text=line.strip()[:400],
            code=_code(groups.get("code"), line),
            pci_address=groups["address"].lower() if groups.get("address") else Absent("the line names no device"),
            time_s=float(time["time"]) if time else Absent("the line has no time since boot"),
        )
    return None


def _code(number: str | None, line: str) -> Fact[int]:
    if not number:
        return Absent("the line has no code")
    earlier = _EARLIER.search(line)
    return int(earlier[1] if earlier else number)


def parse(lines: Iterable[str]) -> tuple[KernelEvent, ...]:
    """The events in `lines`, in their order."""
    return tuple(event for event in map(parse_line, lines) if event is not None)


def collect(root: Path = ROOT) -> Fact[tuple[KernelEvent, ...]]:
    """The events since boot (`dmesg`, else `journalctl -k`); absent with 'no permission' when neither may be read."""
    lines = _ring_buffer(root)
    if isinstance(lines, Absent):
        journal = _journal() if root == ROOT else lines
        if isinstance(journal, Absent):
            return lines
        lines = journal
    return parse(lines)


def _ring_buffer(root: Path) -> Fact[list[str]]:
    place = root / "dev/kmsg"
    if place.is_file():
        text = read_text(root, "dev/kmsg")
        return text if isinstance(text, Absent) else text.splitlines()
    try:
        handle = os.open(place, os.O_RDONLY | WITHOUT_WAITING)
    except FileNotFoundError:
        return Absent("no such file: /dev/kmsg")
    except OSError:
        return Absent("no permission to read the kernel log (try: sudo dmesg)")
    try:
        return list(_records(handle))
    finally:
        os.close(handle)


def _records(handle: int) -> Iterator[str]:
    """Each record of /dev/kmsg as dmesg would print it."""
    while True:
        try:
            record = os.read(handle, 8192)
        except BlockingIOError:
            return
        except BrokenPipeError:
            # the oldest records were overwritten while we read: the next read goes on with what is there
            continue
        except OSError:
            return
        if not record:
            return
        head, _, text = record.decode("utf-8", "replace").partition(";")
        fields = head.split(",")
        seconds = int(fields[2]) / 1e6 if len(fields) > 2 and fields[2].isdecimal() else 0.0
        yield f"[{seconds:12.6f}] {text.splitlines()[0] if text else ''}"


def _journal() -> Fact[list[str]]:
    command = ["journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-monotonic"]
    try:
        answer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    except OSError:
        return Absent("no journalctl")
    # this runs in a child with a deadline of its own, which is given up when the journal does not answer
    with answer:
        assert answer.stdout is not None
        latest = deque(iter(partial(answer.stdout.readline, _LONGEST_LINE), b""), _MOST_LINES)
    lines = [line.decode("utf-8", "replace").rstrip("\n") for line in latest]
    return lines if any(map(str.strip, lines)) else Absent("the journal shows no kernel messages to this user")
