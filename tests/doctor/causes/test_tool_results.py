import pytest

from tests.doctor.causes.judge import report_of, verdict_is
from tests.facts.readers.bug_report import bug_report
from tests.facts.readers.test_dcgm import HEALTH, NEW, OLD
from tests.facts.readers.test_fabric import LOG
from tests.facts.readers.test_nvlink import matrix, status
from tests.facts.readers.test_smi_query import whole


def findings(text):
    return [
        (f.id, f.severity, tuple(card.index for card in f.cards))
        for f in report_of(text).findings
        if f.severity != "info"
    ]


def test_a_failed_test_is_the_cause_that_its_message_names_and_its_gpu():
    assert findings(NEW)[0] == ("gpu_ecc_error", "broken", (1,))
    assert findings(OLD)[0][0::2] == ("thermal_throttle", (0,))


def test_without_a_message_the_tests_name_decides():
    bare = "\n".join(line for line in NEW.splitlines() if "Warning" not in line and "row remapping" not in line)
    assert findings(bare) == [("gpu_hardware_fault", "broken", (1,))]
    why = report_of(bare).findings[0].evidence
    assert any("GPU 1: memory failed" in seen.value for seen in why)


def test_the_health_report_names_the_gpu_of_each_system():
    assert ("nvlink_error", "broken", (3,)) in findings(HEALTH)
    assert ("pcie_link_replays", "warning", (0,)) in findings(HEALTH)


@pytest.mark.parametrize(
    "row",
    [
        "| Persistence Mode          | Fail                                           |",
        "| nccl_tests                | Fail                                           |",
    ],
)
def test_a_failure_that_no_cause_explains_is_never_healthy(row):
    report = report_of(row)
    assert report.verdict == "unknown"
    assert "failed" in report.unexplained[0].value
    assert report_of(row.replace("Fail", "Pass")).verdict == "healthy"


def test_the_fabric_managers_own_errors_are_never_healthy():
    assert report_of(LOG).verdict in ("broken", "unknown")
    quiet = "\n".join(line for line in LOG.splitlines() if "[INFO]" in line)
    assert report_of(quiet).verdict == "healthy"


MATRIX = matrix("X\tNV18\tNV18\tSYS", "NV18\tX\tNV18\tSYS", "NV18\tNV18\tX\tSYS", "SYS\tSYS\tSYS\tX")
REMAPPED = (
    "==============NVSMI LOG==============\nDriver Version                            : 550.54.15\nAttached GPUs : 1\n"
    "GPU 00000000:17:00.0\n    Product Name                          : NVIDIA A100\n    Remapped Rows\n"
    "        Correctable Error                 : 0\n        Uncorrectable Error               : 3\n"
    "        Pending                           : No\n        Remapping Failure Occurred        : Yes\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # links that are down on one GPU or on all
        (status(18, 18, 18, 4), [("nvlink_error", "warning", (3,))]),
        (status(*[0] * 8), [("nvlink_error", "broken", tuple(range(8)))]),
        (status(18, 18), []),
        (status(0), []),
        # cards that a bridge joins may lack it
        (status(4, 4, 0, total=4, name="NVIDIA RTX A6000"), []),
        (status(12, 12, name="NVIDIA H100 PCIe"), []),
        (MATRIX, [("nvlink_error", "broken", (3,))]),
        ("GPUs:\n    gpuId 0:\n        U U U U\n    gpuId 1:\n        U D U U\n", [("nvlink_error", "warning", (1,))]),
        # counters are a warning
        ("GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 7: Recovery Errors: 2\n\t Link 7: CRC Errors: 3\n", [("nvlink_error", "warning", (3,))]),
    ],
)  # fmt: skip
def test_links_are_judged_from_each_of_their_listings(text, expected):
    assert findings(text) == expected


def settled(text):
    """The query without the change of MIG that waits in it for a reset."""
    off = "MIG Mode\n        Current                           : Disabled\n        Pending                           : "
    assert f"{off}Enabled" in text
    return text.replace(f"{off}Enabled", f"{off}Disabled")


def test_what_the_query_reports_is_judged_as_live_and_names_its_gpu():
    assert {name for name, *_ in findings(whole("Full", "Full"))} == {"gpu_mode_change_pending"}
    well = settled(whole("Full", "Full"))
    assert findings(well) == []
    asked = well.replace("Action                   : None", "Action                   : Reset", 1)
    reset = report_of(asked).findings[0]
    assert (reset.id, reset.severity, reset.cards[0].pci_address) == ("gpu_needs_reset", "broken", "0000:17:00.0")
    (hot,) = findings(well.replace(": 64 C", ": 92 C", 1))
    assert hot[:2] == ("thermal_throttle", "warning")
    joined = well.replace("State                             : Completed", "State  : In Progress", 1)
    assert findings(joined) == [("fabric_manager_not_running", "broken", (0,))]


def test_a_bug_report_of_a_machine_that_is_well_is_healthy_and_one_with_an_xid_is_not():
    well = settled(bug_report(padding=2000))
    assert findings(well) == []
    assert report_of(well).verdict == "healthy"
    xid = "[ 99.1] NVRM: Xid (PCI:0000:37:00): 79, pid=1, GPU has fallen off the bus."
    assert findings(bug_report(xid, padding=2000))[0][:2] == ("gpu_fallen_off_bus", "broken")


def test_a_query_of_nvidia_smi_shows_failed_row_remapping():
    assert findings(REMAPPED)[0][0] == "gpu_ecc_error"


test_what_counts_no_error_is_healthy = verdict_is(("healthy",), [
    # rows that count no error
    "    ECC Errors\n        Volatile\n            SRAM Uncorrectable    : 0\n            DRAM Correctable      : 2\n            DRAM Uncorrectable    : 0\n    Remapped Rows\n        Uncorrectable Error       : 0\n",
    # corrected errors of the slot are no fault of shared memory
    "nvidia 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer\ntorch.cuda.is_available() True",
])  # fmt: skip
