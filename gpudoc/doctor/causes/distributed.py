"""Several processes: rendezvous, NCCL, gloo, DDP and DataParallel."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import about_training, by_text, quote, words
from gpudoc.doctor.model import Finding, Skip
from gpudoc.doctor.vocabulary import Listed
from gpudoc.facts.readers.model import Text

_TIMEOUT = Listed("ranks-timeout")
_BUSY = Listed("ranks-busy")
_UNEVEN = Listed("ranks-uneven")
_STUCK = Listed("ranks-stuck")
_BARRIER = words(r"\bbarrier\b", "wait_for_everyone", "monitored_barrier", r"other (?:ranks|processes) (?:to )?wait")
# work that one process does while the others wait for it
_ALONE = words(
    r"only (?:on |in |by )?(?:one|a single|the main|main|the master|master|rank ?0|the first|first)\b",
    r"(?:just|on) (?:one|a single|1) (?:gpu|rank|process)",
    r"is_(?:local_|world_)?main_process|is_(?:local_|world_)?process_zero|rank ?== ?0|rank in \[-1, 0\]",
)
_P2P = Listed("ranks-p2p")
_REFUSES_RTX = words(
    r"RTX (?:\d{4} (?:or|and) )?\d{4} series does ?n.t support faster communication",
    r"doesn't support faster communication broadband",
)


def _find_busy(text: Text) -> Iterator[Finding | Skip]:
    said = text.find(_TIMEOUT)
    alone = text.find(_ALONE)
    if said is None and alone is not None and text.find(_BARRIER):
        said = text.find(_STUCK)
        if said is not None:
            both = (quote(said, "effect"), quote(alone, "meanwhile"))
            yield Finding(id="nccl_timeout_one_rank_busy", confidence=0.72, evidence=both)
        return
    if said is None:
        return
    busy = text.find(_BUSY)
    uneven = text.find(_UNEVEN)
    seen = (quote(said, "timeout"),) + ((quote(busy, "meanwhile"),) if busy else ())
    sure = 0.8 if busy and not uneven else 0.55
    yield Finding(id="nccl_timeout_one_rank_busy", confidence=sure, evidence=seen)


def _find_p2p(text: Text) -> Iterator[Finding | Skip]:
    if text.find(_REFUSES_RTX) or not about_training(text):
        return
    path = text.find(_P2P)
    stuck = text.find(_STUCK) or text.find(_TIMEOUT)
    if path and stuck:
        yield Finding(id="nccl_p2p_hang", confidence=0.85, evidence=(quote(path, "P2P"), quote(stuck, "effect")))
    elif stuck and text.find(
        words("NCCL INFO", r"nccl", r"DataParallel", r"multi-?gpu", r"\b(?:two|2|4|8|multiple) gpus")
    ):
        yield Finding(id="nccl_p2p_hang", confidence=0.42, evidence=(quote(stuck, "effect"),))
    elif path and text.find(
        words(r"(?:wrong|corrupt\w*|garbage|zeros?|nan|incorrect) (?:results?|values?|data|tensor)")
    ):
        yield Finding(id="nccl_p2p_hang", confidence=0.6, evidence=(quote(path, "P2P"),))


FINDERS = (
    by_text("nccl_timeout_one_rank_busy", _find_busy),
    by_text("nccl_p2p_hang", _find_p2p),
)
