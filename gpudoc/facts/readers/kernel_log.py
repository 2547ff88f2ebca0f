"""Kernel log lines in pasted text: those that the live reader knows, and the looser ways in which people quote them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpudoc.facts.kernel_log import parse_line
from gpudoc.facts.model import Absent, KernelEvent
from gpudoc.facts.readers.gather import Gather
from gpudoc.facts.readers.model import Line

_WORTH_A_LOOK = ("nvrm", "xid", "kill", "pci", "suspend", "hibernat", "nvidia", "lockdown", "key was")
_PCI = r"(?:PCI:)?((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
_QUOTED = re.compile(
    rf"\bX[iI][dD]\b\s*(?:error)?\s*(?:\(\s*{_PCI}\s*\))?\s*[:=#]?\s*(?P<code>\d{{1,3}})\b(?:[\s,]+{_PCI})?"
)
_EARLIER = re.compile(r"caused by previous X[iI][dD]\s+(?P<code>\d{1,3})\b")


def read(lines: Sequence[Line], gather: Gather) -> None:
    """Put the kernel's events into `gather`, in their order."""
    for line in lines:
        text = line.text
        lowered = text.lower()
        if not any(word in lowered for word in _WORTH_A_LOOK):
            continue
        event = _loose(text) or parse_line(text)
        if event is not None:
            gather.put_event(event)
            gather.recognise("kernel_log")


def _loose(text: str) -> KernelEvent | None:
    # a channel that was cleaned up names the event that began it
    match = _EARLIER.search(text) or _QUOTED.search(text)
    if match is None:
        return None
    place = re.search(_PCI, text) if match.re is _EARLIER else None
    address = place[1] if place else None if match.re is _EARLIER else match[1] or match[3]
    return KernelEvent(
        kind="xid",
        text=text.strip()[:400],
        code=int(match["code"]),
        pci_address=address.lower() if address else Absent("the line names no device"),
    )
