"""Kernel log lines that matter (`dmesg`, `journalctl -k`): Xid, SXid, AER, NVRM, the OOM killer, resume."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpudoc.facts.model import NOT_READ, Fact, KernelEvent
from gpudoc.facts.readers.gather import Gather
from gpudoc.facts.readers.model import Line

_PCI = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
_XID = re.compile(rf"\bXid\s*(?:\({_PCI}\))?\s*[:=]?\s*(\d{{1,3}})\b(?:\s*,?\s*{_PCI})?")
_SXID = re.compile(rf"SXid\s*(?:\({_PCI}\))?\s*[:=]?\s*(\d{{4,6}})")
_TIME = re.compile(r"^\W{0,3}\[\s*(\d+\.\d{3,})\]")
_OOM = re.compile(r"(?i)out of memory: kill(?:ed)? process|oom-kill:|invoked oom-killer|oom_reaper: reaped")
_AER = re.compile(r"(?i)\bAER:|PCIe Bus Error")
_RESUME = re.compile(r"PM: suspend (?:entry|exit)|Finished System Suspend|Waking up from system sleep", re.I)


def read(lines: Sequence[Line], gather: Gather) -> None:
    """Put the kernel's events into `gather`, in their order."""
    for line in lines:
        event = read_line(line.text)
        if event is not None:
            gather.put_event(event)
            gather.recognise("kernel_log")


def read_line(text: str) -> KernelEvent | None:
    """The event of one kernel log line, or None when the line does not matter."""
    stamp = _TIME.match(text)
    time_s: Fact[float] = float(stamp[1]) if stamp else NOT_READ
    said = text.strip()[:300]
    sxid = _SXID.search(text)
    if sxid:
        return KernelEvent(kind="sxid", text=said, code=int(sxid[2]), pci_address=sxid[1] or NOT_READ, time_s=time_s)
    xid = _XID.search(text)
    if xid and (xid[1] or xid[3] or "NVRM" in text or re.search(r"\bXid\s*[:=]?\s*\d", text)):
        address = xid[1] or xid[3] or NOT_READ
        return KernelEvent(kind="xid", text=said, code=int(xid[2]), pci_address=address, time_s=time_s)
    for kind, pattern in (("oom_kill", _OOM), ("aer", _AER), ("resume", _RESUME)):
        if pattern.search(text):
            return KernelEvent(kind=kind, text=said, time_s=time_s)
    if "NVRM:" in text:
        return KernelEvent(kind="nvrm", text=said, time_s=time_s)
    return None
