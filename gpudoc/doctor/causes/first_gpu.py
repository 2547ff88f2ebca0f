"""What fills the first GPU more than the others: DataParallel gathers there, and other ranks open contexts on it."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.facts.model import Absent
from gpudoc.facts.readers.model import Text
from gpudoc.units import MIB, format_bytes

_RAN_OUT = words("out of memory", r"\boom\b")
_FIRST = r"(?:rank[- ]?=?0|gpu ?[-:#]? ?0|cuda:0|first gpu|main gpu|primary gpu|master)\b"
_HELD = r"(?:process\w*|threads?|contexts?|memory|mem)\b"
_MORE = rf"(?:extra|additional|several|multiple|more|other|higher) [^.\n]{{0,40}}{_HELD}"
_CROWDED = words(
    rf"{_MORE}[^.\n]{{0,60}}{_FIRST}",
    rf"{_FIRST}[^.\n]{{0,60}}{_MORE}",
    r"process\w* (?:on|in) (?:the )?(?:unused|other|unassigned|wrong|all|0 and 1)\b[^.\n]{0,20}",
)


def _find_contexts(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    gpus = evidence.machine.gpus
    for gpu in () if isinstance(gpus, Absent) else gpus:
        processes = () if isinstance(gpu.processes, Absent) else gpu.processes
        held = sorted(
            p.memory_bytes for p in processes if not isinstance(p.memory_bytes, Absent) and p.memory_bytes > 100 * MIB
        )
        names = {p.name for p in processes if not isinstance(p.name, Absent)}
        # a bare CUDA context takes 200 to 900 MiB: several of that size beside one that trains
        contexts = [h for h in held if h < 1100 * MIB]
        if gpu.index == 0 and len(contexts) >= 2 and held[-1] > 2 * max(contexts) and len(names) <= 2:
            value = ", ".join(format_bytes(h) for h in reversed(held))
            yield Finding(
                id="extra_contexts_on_gpu0",
                confidence=0.9,
                severity="warning" if not text.find(words("out of memory")) else "broken",
                evidence=(observe("memory per process on GPU 0", value, "nvidia-smi"),),
            )
            return
    stated = text.find(_CROWDED)
    said = stated or text.find(
        words(
            r"(?:every|each|all|other) (?:rank|process|worker)\w* .{0,60}(?:on |use |using |allocat\w* .{0,12}|"
            r"memory .{0,12})(?:the )?(?:first gpu|gpu:? ?0|cuda:0|device 0|gpu0)",
            r"(?:extra|additional|multiple|several|\d) (?:process\w*|contexts?) .{0,30}(?:on|in) (?:the )?(?:first "
            r"gpu|gpu:? ?0|cuda:0|gpu0)",
            # a checkpoint goes back to the device that it was saved from, in each process
            rf"(?:resum\w*|checkpoint|torch\.load|\.pth?\b).{{0,160}}\bmem\w*[^.\n]{{0,24}}{_FIRST}[^.\n]{{0,40}}(?:high|more|larg|extra)\w*",
            rf"\bmemory[^.\n]{{0,24}}{_FIRST}[^.\n]{{0,60}}(?:resum\w*|checkpoint)",
            r"map_location",
            r"gpu:? ?0 .{0,50}(?:more|extra|higher|additional) (?:memory|processes)",
        )
    )
    many = text.find(
        words(
            r"\bDDP\b",
            "DistributedDataParallel",
            r"local_rank",
            r"\branks?\b",
            r"(?:each|every) process\b",
            "torchrun",
            "distributed",
            r"gpu:? ?0",
        )
    )
    if said and many and not text.find(words("Attempting to deserialize")):
        over = stated is not None and text.find(_RAN_OUT) is not None
        yield Finding(
            id="extra_contexts_on_gpu0",
            confidence=0.78 if stated else 0.62,
            severity="broken" if over else "warning",
            evidence=(quote(said),),
        )


FINDERS = (text_finder("extra_contexts_on_gpu0", _find_contexts),)
