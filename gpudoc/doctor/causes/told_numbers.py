"""Numbers of driver faults as people and other programs retell them: CUDA's result codes and Xids."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import quote, text_finder
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text
from gpudoc.knowledge.xids import find_xid

# CUDA's own result codes, which every framework prints in its own manner (cuda.h, enum cudaError_enum)
_CODES = {
    34: ("libcuda_stub_loaded", 0.85),
    35: ("driver_too_old", 0.85),
    46: ("compute_mode_exclusive", 0.7),
    214: ("gpu_ecc_error", 0.9),
    222: ("driver_too_old", 0.85),
    802: ("fabric_manager_not_running", 0.93),
    803: ("libcuda_mismatch_803", 0.93),
    804: ("forward_compat_on_consumer_gpu", 0.93),
    805: ("mps_daemon_unreachable", 0.93),
    806: ("mps_daemon_unreachable", 0.93),
    807: ("mps_daemon_unreachable", 0.93),
    808: ("mps_daemon_unreachable", 0.85),
    809: ("mps_daemon_unreachable", 0.85),
    810: ("mps_daemon_unreachable", 0.85),
    999: ("uvm_broken_after_suspend", 0.6),
}
_CODE = Pattern(
    r"(?i)(?:\bcu(?:da)?(?:Init|Get|Device|Ctx|Driver|Runtime)\w*\b[^\n]{0,40}?"
    r"(?:return\w*|fail\w*|error|result|status|code|[:=>])[^\n\d]{0,12}"
    r"|\b(?:cuda|nvidia)\s(?:\w+\s){0,2}(?:error|failure|err|status|code)(?:\scode)?\W{0,4})(\d{2,3})(?![\d.%])"
    r"|\bcode ?= ?(\d{2,3})\(cuda"
    r"|[(\[](8\d\d|999|214|222)[)\]]\W{0,4}(?:call to cu|[^\n]{0,40}\bcuda)"
    r"|[(\[](8\d\d|999|214|222) vs\.? 0[)\]]"
)


def _find_codes(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    for said in text.find_all(_CODE, most=20):
        row = _CODES.get(int(next(group for group in said.match.groups() if group)))
        if row is not None:
            yield Finding(id=row[0], confidence=row[1], evidence=(quote(said, "CUDA error code"),))
            return


# "we get XID 79", "Xids 63 and 64 in the log", where no line of the log itself was pasted
_TOLD_XID = Pattern(r"(?i)\bxid(?:s|\s?errors?|\s?events?|\s?codes?|\s?messages?)?(?:\sof)?\W{1,3}(\d{1,3})\b")
_XID_SURE = {"memory": 0.8, "bus": 0.85, "hardware": 0.7, "link": 0.7, "firmware": 0.85, "application": 0.55}


def _find_told_xids(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    if evidence.source == "machine":
        return
    for said in text.find_all(_TOLD_XID, most=10):
        row = find_xid(int(said[1]))
        if row is not None and row.cause and row.kind in _XID_SURE:
            yield Finding(id=row.cause, confidence=_XID_SURE[row.kind], evidence=(quote(said, f"Xid {said[1]}"),))
            return


FINDERS = (
    text_finder("fabric_manager_not_running", _find_codes),
    text_finder("gpu_fallen_off_bus", _find_told_xids),
)
