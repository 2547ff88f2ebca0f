"""Findings of other tools: failed tests of DCGM, links that are down, a state that the driver reports."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.live import told_gpus
from gpudoc.doctor.causes.sign import by_text, origin_of, quote
from gpudoc.doctor.model import Card, Evidence, Finder, Finding, Severity, Skip, observe
from gpudoc.facts.model import Absent, DeviceTest, Gpu, known_or
from gpudoc.facts.readers.model import CleanText
from gpudoc.facts.readers.nvlink import COUNTERS
from gpudoc.knowledge.device_tests import cause_of_test
from gpudoc.knowledge.nvlinks import is_on_board
from gpudoc.patterns import Pattern

# a tool's warning is less sure than a failure
_SURE_OF_WARNING = 0.85
# a bridge joins two cards; if three have links, all cards of that kind should have some
_FEWEST_OF_A_BOARD = 3


def card_of(evidence: Evidence, index: int) -> Card:
    """The card with this index, with its address if the text gives it."""
    gpu = next((gpu for gpu in known_or(evidence.machine.gpus, ()) if gpu.index == index), Gpu(index=index))
    return Card(index=index, pci_address=gpu.pci_address, uuid=gpu.uuid)


def _find_failed(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Tests of other tools that failed or warned, each as the cause that it points to."""
    tests: tuple[DeviceTest, ...] = known_or(evidence.machine.tests, ())
    for test in tests:
        known = ("nvlink_error", 0.7) if test.tool == COUNTERS else cause_of_test(test.name, test.message)
        if test.result not in ("fail", "warn") or known is None:
            continue
        cause, sure = known
        failed = test.result == "fail"
        severity: Severity = "broken" if failed else "warning"
        yield Finding(
            id=cause,
            severity=severity,
            confidence=sure if failed else round(sure * _SURE_OF_WARNING, 2),
            evidence=(observe(test.tool, test.said, test.origin),),
            cards=() if isinstance(test.gpu, Absent) else (card_of(evidence, test.gpu),),
        )


def _find_links(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A GPU with fewer links up than GPUs of its kind, or a board on which some or all links are down."""
    counted = [(gpu, up) for gpu in told_gpus(evidence) if not isinstance(up := gpu.nvlink_active, Absent)]
    most = max((up for _, up in counted), default=0)
    with_links = sum(up > 0 for _, up in counted)
    for gpu, up in counted:
        name, total = known_or(gpu.name, ""), known_or(gpu.nvlink_total, 0)
        linked = is_on_board(name)
        # a machine with only one GPU of a board has no GPU to link it with
        board = linked is True and len(counted) > 1
        of_a_board = board or (linked is None and with_links >= _FEWEST_OF_A_BOARD)
        # dcgmi names no cards, but distinguishes a link that is down from one that the card lacks
        told_down = not name and up < total
        expected = max(most, total if board or told_down else 0)
        if not (of_a_board or told_down) or (up >= expected and not (board and up == 0)):
            continue
        likes = f", the same models have {most}" if most > up else ""
        of = f" of {total}" if total else ""
        what = f"GPU {gpu.index}: {up}{of} NVLinks up{likes}"
        yield Finding(
            id="nvlink_error",
            severity="broken" if up == 0 else "warning",
            confidence=0.9 if board or most > up else 0.7,
            evidence=(observe("NVLink", what, origin_of(evidence, f"gpus.{gpu.index}.nvlink_active")),),
            cards=(card_of(evidence, gpu.index),),
        )


def _find_no_fabric(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A GPU that has not joined the fabric of its switches."""
    for gpu in told_gpus(evidence):
        state = known_or(gpu.fabric_state, "")
        if state in ("not started", "in progress"):
            said = f"GPU {gpu.index}: fabric state {state}"
            seen = observe("fabric", said, origin_of(evidence, f"gpus.{gpu.index}.fabric_state"))
            cards = (card_of(evidence, gpu.index),)
            yield Finding(id="fabric_manager_not_running", confidence=0.85, evidence=(seen,), cards=cards)


_TOLD_WIDTH = Pattern(r"(?i)Link Width[^\n]{0,24}Max\W{1,12}(\d+)x?[^\n]{0,24}Current\W{1,12}(\d+)x?")


def _find_width(text: CleanText) -> Iterator[Finding | Skip]:
    """A link that is narrower than its maximum, stated in one line of a person's own words."""
    told = text.find(_TOLD_WIDTH)
    if told and int(told[2]) < int(told[1]):
        seen = quote(told, "PCIe link width")
        yield Finding(id="pcie_link_degraded", confidence=0.78, severity="warning", evidence=(seen,))


FINDERS = (
    by_text("pcie_link_degraded", _find_width),
    Finder(id="gpu_hardware_fault", find=_find_failed, reads="text"),
    Finder(id="nvlink_error", find=_find_links, reads="text"),
    Finder(id="fabric_manager_not_running", find=_find_no_fabric, reads="text"),
)
