"""Faults of the card, its slot, its power and its firmware, as the kernel log and error texts show them."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import about_training, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.doctor.setting import known
from gpudoc.doctor.vocabulary import Listed
from gpudoc.facts.model import Absent
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

_THROTTLE = Listed("hardware-throttle")
_HOT = Pattern(r"(?i)(?<![\d.])(8[3-9]|9\d|10\d)\s*(?:°\s*C?|degrees?|C\b|deg)|(?:temp\w*)\W{0,12}(8[3-9]|9\d|10\d)\b")
_TOO_HOT = Listed("hardware-too-hot")
_SLOWER = words(
    r"\bslow(?:s|ed|er|ing|down)?\b",
    r"(?:speed|fps|throughput)[^.\n]{0,40}(?:lower|drop\w*|decreas\w*|degrad\w*|fall\w*)",
)
_HOT_WORDS = words("overheat", r"thermal\w*", "cooling", r"temperature", "too hot")


def _find_throttle(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    if any(not isinstance(gpu.throttle_reasons, Absent) for gpu in known(evidence.machine.gpus) or ()):
        # the driver's own list of reasons was read and names no heat: its words are no complaint
        return
    cut, hot = text.find(_THROTTLE), text.find(_HOT)
    too_hot = text.find(_TOO_HOT)
    if cut is None and too_hot and about_training(text):
        cut = text.find(_SLOWER)
    heat = hot or text.find(_HOT_WORDS)
    if cut and heat:
        yield Finding(
            id="thermal_throttle",
            confidence=0.85 if hot else 0.7,
            severity="warning",
            evidence=(
                observe("clocks", cut.line.text, cut.line.origin),
                observe("heat", heat.line.text, heat.line.origin),
            ),
        )


_DOWNGRADED = Listed("hardware-downgraded")
_TOLD_WIDTH = Pattern(r"(?i)Link Width[^\n]{0,24}Max\W{1,12}(\d+)x?[^\n]{0,24}Current\W{1,12}(\d+)x?")
# the speed of an idle link is low too: it counts where transfers were measured
_SLOW_LINK = words(r"LnkSta:\s*Speed (?:2\.5|5(?:\.0)?) ?GT/s", r"\bPCIe GEN ?[12] ?@ ?\d+x")
_MOVES = words(r"\d ?GB/s(?:ec)?\b|\bbandwidth\b[^.\n]{0,60}\b(?:low\w*|less|slow\w*|poor|only)\b")
_PCIE = words("pcie", "pci express", "LnkSta", r"\blink\b", "bandwidth", "riser", r"\bslot\b")


def _find_link(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    said, about = text.find(_DOWNGRADED), text.find(_PCIE)
    if said and about:
        yield Finding(
            id="pcie_link_degraded",
            confidence=0.82,
            severity="warning",
            evidence=(observe("PCIe link", said.line.text, said.line.origin),),
        )
        return
    slow_link = text.find(_SLOW_LINK)
    if slow_link and text.find(_MOVES):
        seen = observe("PCIe link", slow_link.line.text, slow_link.line.origin)
        yield Finding(id="pcie_link_degraded", confidence=0.7, severity="warning", evidence=(seen,))
        return
    told = text.find(_TOLD_WIDTH)
    if told and int(told[2]) < int(told[1]):
        seen = observe("PCIe link width", told.line.text, told.line.origin)
        yield Finding(id="pcie_link_degraded", confidence=0.78, severity="warning", evidence=(seen,))


FINDERS = (
    text_finder("thermal_throttle", _find_throttle),
    text_finder("pcie_link_degraded", _find_link),
)
