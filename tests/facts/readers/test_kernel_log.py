from __future__ import annotations

import pytest

from gpudoc.facts.readers import read


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("[ 8812.10] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 79),
        ("Mai 03 11:02:03 node kernel: NVRM: Xid (PCI:0000:3b:00): 31, Ch 0000000a, intr 00000000. MMU Fault", 31),
        ("we saw Xid 119 twice today", 119),
        ("XID error: 48", 48),
    ],
)
def test_an_xid_is_read_as_the_kernel_writes_it_and_as_people_quote_it(line, code):
    (event,) = read(line).machine.kernel_log
    assert (event.kind, event.code) == ("xid", code)


def test_killed_processes_are_events_and_other_ids_are_not():
    (event,) = read("Out of memory: Killed process 4711 (python) total-vm:1kB").machine.kernel_log
    assert event.kind == "oom_kill"
    from gpudoc.facts.model import NOT_READ

    assert read("the device id 43 of the fluid pump; oxid 5").machine.kernel_log == NOT_READ
