"""The log of NVIDIA's fabric manager: faults of NVSwitches as kernel events, its own errors as failed tests."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.facts.model import Absent, DeviceTest, KernelEvent
from gpudoc.facts.readers.gather import Gather
from gpudoc.facts.readers.model import Line
from gpudoc.patterns import Pattern

TOOL = "fabric manager"
# [Jul 23 2024 07:53:55] [ERROR] [tid 841] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id ...
_ENTRY = Pattern(r"^\W{0,3}\[?[A-Z][a-z]{2} \d{1,2} \d{4} [\d:]{8}\] \[(?P<level>[A-Z]+)\] \[tid \d+\] (?P<said>\S.*)")
_SWITCH = Pattern(
    r"detected NVSwitch (?P<kind>fatal|non-fatal) error (?P<code>\d{4,6})\b"
    r"(?:.{0,60}pci bus id (?P<address>[0-9a-fA-F]{4,8}:[0-9a-fA-F:.]+))?"
)
_BAD = ("ERROR", "CRITICAL", "FATAL")
_MOST = 20


def read(lines: Sequence[Line], gather: Gather) -> None:
    """Put the fabric manager's faults into `gather`."""
    failed = 0
    for line in lines:
        text = line.text
        if "[tid " not in text and "NVSwitch" not in text:
            continue
        entry, switch = _ENTRY.match(text), _SWITCH.search(text)
        if switch:
            gather.recognise("fabric_manager_log")
            gather.put_event(
                KernelEvent(
                    kind="sxid",
                    text=text.strip()[:400],
                    code=int(switch["code"]),
                    pci_address=switch["address"].lower() if switch["address"] else Absent("the line names no device"),
                )
            )
        if entry:
            gather.recognise("fabric_manager_log")
        if entry and entry["level"] in _BAD and not (switch and switch["kind"] == "non-fatal") and failed < _MOST:
            failed += 1
            gather.put_test(
                DeviceTest(
                    tool=TOOL,
                    name=f"line {line.number}",
                    result="fail",
                    gpu=Absent("the line names no GPU"),
                    message=entry["said"][:300],
                    origin=line.origin,
                )
            )
