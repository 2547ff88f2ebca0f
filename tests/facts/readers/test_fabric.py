from __future__ import annotations

from gpudoc.facts.model import Absent
from gpudoc.facts.readers import read

LOG = """[Jul 23 2024 07:53:50] [INFO] [tid 841] Fabric Manager Log initializing at: 7/23/2024
[Jul 23 2024 07:53:52] [INFO] [tid 841] Abort CUDA jobs when FM exits = 1
[Jul 23 2024 07:53:55] [ERROR] [tid 841] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33
[Jul 23 2024 07:53:56] [ERROR] [tid 841] detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id 00000000:87:00.0 physical id 2 port 61
[Jul 23 2024 07:53:57] [ERROR] [tid 841] failed to find the member GPU handle 29774987 in partition -1
"""


def test_faults_of_switches_are_kernel_events_with_their_address():
    machine = read(LOG).machine
    assert [(e.kind, e.code, e.pci_address) for e in machine.kernel_log] == [
        ("sxid", 20034, "00000000:86:00.0"),
        ("sxid", 12028, "00000000:87:00.0"),
    ]


def test_its_own_errors_failed_and_faults_that_are_not_fatal_did_not():
    tests = read(LOG).machine.tests
    assert [(t.tool, t.result, t.origin) for t in tests] == [
        ("fabric manager", "fail", "line 3"),
        ("fabric manager", "fail", "line 5"),
    ]
    assert "member GPU handle" in tests[1].message
    assert "fabric_manager_log" in read(LOG).recognised


def test_a_log_that_only_informs_holds_no_fault():
    quiet = "\n".join(line for line in LOG.splitlines() if "[INFO]" in line)
    assert isinstance(read(quiet).machine.tests, Absent)
    assert "fabric_manager_log" in read(quiet).recognised


def test_a_line_cut_in_two_and_windows_ends():
    assert isinstance(read(LOG[: LOG.index("20034")]).machine.kernel_log, Absent)
    assert len(read(LOG.replace("\n", "\r\n").encode("utf-16")).machine.kernel_log) == 2


def test_thousands_of_errors_are_not_all_kept():
    many = "".join(f"[Jul 23 2024 07:53:57] [ERROR] [tid 8] failed to find handle {'x' * n}\n" for n in range(200))
    assert len(read(many).machine.tests) <= 20
