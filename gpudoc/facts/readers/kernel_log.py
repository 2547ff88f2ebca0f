"""Kernel log lines in pasted text: the forms that the live reader knows, and the looser forms that people quote."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.facts.kernel_log import parse_line
from gpudoc.facts.model import Absent, KernelEvent
from gpudoc.facts.readers.gather import Gather
from gpudoc.facts.readers.model import Line
from gpudoc.patterns import Pattern

_WORTH_A_LOOK = ("nvrm", "xid", "kill", "pci", "suspend", "hibernat", "nvidia", "lockdown", "key was", "aer:", "rminit")
_PCI = r"(?:PCI:)?((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
_QUOTED = Pattern(rf"\bX[iI][dD]\b\s*(?:error\s*)?(?:\(\s*{_PCI}\s*\)\s*)?(?:[:=#]\s*)?(\d{{1,3}})\b(?:[\s,]+{_PCI})?")


def read(lines: Sequence[Line], gather: Gather) -> None:
    """Put the kernel's events into `gather`, in their order."""
    for line in lines:
        text = line.text
        lowered = text.lower()
        if not any(word in lowered for word in _WORTH_A_LOOK):
            continue
        event = parse_line(text)
        if event is None or event.kind == "nvrm":
            event = _loose(text) or event
        if event is not None:
            gather.put_event(event)
            gather.recognise("kernel_log")


def _loose(text: str) -> KernelEvent | None:
    match = _QUOTED.search(text)
    if match is None:
        return None
    address = match[1] or match[3]
    return KernelEvent(
        kind="xid",
        text=text.strip()[:400],
        code=int(match[2]),
        pci_address=address.lower() if address else Absent("the line names no device"),
    )
