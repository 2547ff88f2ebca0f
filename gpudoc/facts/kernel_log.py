"""The lines of the kernel log that matter to a GPU, parsed once for the live log and for pasted ones."""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from gpudoc.facts.container import ROOT
from gpudoc.facts.files import WITHOUT_WAITING, read_bytes
from gpudoc.facts.model import Absent, Fact, KernelEvent
from gpudoc.patterns import Pattern

# only the newest lines are read: a journal may span months or grow during the read; a kernel record has at most 8 KiB
_MOST_LINES, _LONGEST_LINE = 50_000, 8_192
_MOST_BYTES, _MOST_EVENTS, _MOST_READ = 16 << 20, 10_000, 4_000_000

_ADDRESS = r"(?:PCI:)?(?P<address>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
# the line about a removed channel names the Xid that caused it
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
    """The event in one line of a kernel log; None if the line is not about GPUs, PCIe or killed processes."""
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
    """The newest events in `lines`, in their order."""
    return tuple(deque((event for event in map(parse_line, lines) if event is not None), _MOST_EVENTS))


def collect(root: Path = ROOT) -> Fact[tuple[KernelEvent, ...]]:
    """The events since boot (`dmesg`, else `journalctl -k`); absent with 'no permission' if neither may be read."""
    lines = _ring_buffer(root)
    if isinstance(lines, Absent):
        journal = _journal() if root == ROOT else lines
        if isinstance(journal, Absent):
            return lines
        lines = journal
    # decode one line at a time: text takes up to four times the memory of bytes
    return parse(line.decode("utf-8", "replace").rstrip("\n") for line in lines)


def _newest(lines: Iterable[bytes]) -> deque[bytes]:
    """The last lines, in bounded memory whatever their number and length."""
    kept: deque[bytes] = deque()
    num_bytes = 0
    for line in islice(lines, _MOST_READ):
        kept.append(line)
        num_bytes += len(line)
        while len(kept) > _MOST_LINES or num_bytes > _MOST_BYTES:
            num_bytes -= len(kept.popleft())
    return kept


def _ring_buffer(root: Path) -> Fact[deque[bytes]]:
    place = root / "dev/kmsg"
    if place.is_file():
        data = read_bytes(root, "dev/kmsg")
        return data if isinstance(data, Absent) else _newest(data.splitlines())
    try:
        handle = os.open(place, os.O_RDONLY | WITHOUT_WAITING)
    except FileNotFoundError:
        return Absent("no such file: /dev/kmsg")
    except OSError:
        return Absent("no permission to read the kernel log (try: sudo dmesg)")
    try:
        return _newest(_records(handle))
    finally:
        os.close(handle)


def _records(handle: int) -> Iterator[bytes]:
    """Each record of /dev/kmsg as dmesg would print it."""
    while True:
        try:
            record = os.read(handle, _LONGEST_LINE)
        except BlockingIOError:
            return
        except BrokenPipeError:
            # the oldest records were overwritten while we read: the next read continues with the remaining ones
            continue
        except OSError:
            return
        if not record:
            return
        head, _, text = record.partition(b";")
        fields = head.decode("ascii", "replace").split(",")
        seconds = int(fields[2]) / 1e6 if len(fields) > 2 and fields[2].isdecimal() else 0.0
        yield b"[%12.6f] %s" % (seconds, text.splitlines()[0] if text else b"")


def _journal() -> Fact[deque[bytes]]:
    command = ["journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-monotonic"]
    try:
        answer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    except OSError:
        return Absent("no journalctl")
    # this runs in a child with its own deadline, which is abandoned if the journal does not answer
    with answer:
        assert answer.stdout is not None
        latest = _newest(iter(partial(answer.stdout.readline, _LONGEST_LINE), b""))
        if answer.stdout.read(1):
            answer.kill()
    return latest if any(map(bytes.strip, latest)) else Absent("the journal shows no kernel messages to this user")
