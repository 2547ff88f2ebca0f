from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, report_of

CASES = [
    ("nvlink_error", "NVRM: Xid (PCI:0000:c3:00): 45, pid=81, name=python3, Ch 00000003 caused by previous Xid 145"),
    ("thermal_throttle", "torch: speed falls from 12 it/s to 7 it/s after an hour; the card is overheating"),
    ("thermal_throttle", "After ten minutes the clock drops to 600 MHz, temperature 91C, HW Thermal Slowdown : Active"),
    ("pcie_link_degraded", "LnkSta: Speed 2.5GT/s (downgraded), Width x4 (downgraded)\ncopies to the GPU are slow over PCIe"),
    ('pcie_link_degraded', 'The card runs with only x1 of its x16 lanes: link width x1, transfers from host to GPU are very slow'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("the bandwidth test shows 1.4 GB/s to the GPU\nLnkSta: Speed 2.5GT/s, Width x16", True),
        ("nvtop shows PCIe GEN 1@16x while training, the measured copies reach 0.7 GB/s", True),
        ("lspci of the idle card says LnkSta: Speed 2.5GT/s, Width x16", False),
        ("the bandwidth test shows 11.9 GB/s to the GPU\nLnkSta: Speed 8GT/s, Width x16", False),
    ],
)
def test_a_slow_link_counts_where_transfers_were_measured(text, named):
    assert ("pcie_link_degraded" in [f.id for f in report_of(text).findings if f.severity != "info"]) is named


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_what_the_hardware_says_names_the_cause(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


def test_a_query_of_nvidia_smi_shows_failed_row_remapping():
    text = (
        "==============NVSMI LOG==============\nDriver Version                            : 550.54.15\nAttached GPUs : 1\n"
        "GPU 00000000:17:00.0\n    Product Name                          : NVIDIA A100\n    Remapped Rows\n"
        "        Correctable Error                 : 0\n        Uncorrectable Error               : 3\n"
        "        Pending                           : No\n        Remapping Failure Occurred        : Yes\n"
    )
    assert first(text) == "gpu_ecc_error"


def test_an_xid_of_the_application_alone_blames_no_hardware():
    assert "gpu_hardware_fault" not in [
        f.id for f in report_of("NVRM: Xid (PCI:0000:41:00): 43, pid=900, name=python3, Ch 00000010").findings
    ]


def test_rows_that_count_no_error_are_no_fault():
    text = (
        "    ECC Errors\n        Volatile\n            SRAM Uncorrectable    : 0\n            DRAM Correctable      : 2\n"
        "            DRAM Uncorrectable    : 0\n    Remapped Rows\n        Uncorrectable Error       : 0\n"
    )
    assert report_of(text).verdict == "healthy", report_of(text).findings


def test_corrected_errors_of_the_slot_are_no_fault_of_shared_memory():
    text = (
        "nvidia 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer\ntorch.cuda.is_available() True"
    )
    assert report_of(text).verdict == "healthy", report_of(text).findings
