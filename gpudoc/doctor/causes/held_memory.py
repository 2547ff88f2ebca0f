"""Memory that somebody else holds, or that is simply used up, by what tables and half sentences show of it."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.lexicon import DEVICE_MEMORY, ENDED, GROWS, HOST_MEMORY, WITHIN_RUN
from gpudoc.doctor.causes.memory import RAN_OUT
from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import about_training, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.facts.model import Absent
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text
from gpudoc.units import GIB, format_bytes

_ABOUT_MEMORY = words(
    r"\bmemory\b[^.\n]{0,40}\b(?:full|held|occupied|taken|used|allocated|releas\w*|free\w*|leak\w*)\b|\boom\b"
)
_LATE = words(
    r"\b(?:takes?|took|wait\w*|needs?) [^.\n]{0,40}\b(?:releas(?:e|ed|ing)|free[ds]?|freeing|clear(?:s|ed)?|"
    r"empt(?:y|ied))\b",
    r"\b(?:released?|freed|cleared)\b[^.\n]{0,30}\b(?:after|only) (?:\w+ ){0,2}(?:\d+|a few|some|several) ?"
    r"(?:min\w*|sec\w*)",
)


def _find_late(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The device's memory comes back long after the program's end: till then a process of it is there."""
    del evidence
    late = together(text, _LATE, DEVICE_MEMORY, ENDED, around=1, without=WITHIN_RUN)
    if late and about_training(text):
        yield Finding(
            id="oom_other_process",
            confidence=0.7,
            severity="broken" if text.find(RAN_OUT) else "warning",
            evidence=(quote(late, "memory"),),
        )


# the table of processes with no row between its head and its end
_NO_ROWS = Pattern(r"Process name[^\n]*\n(?:[^\n]*Usage[^\n]*\n)?[^\n\w]*={5}[^\n\w]*\n[^\n\w]*[-+]{5}")
# a driver and a screen take less
_HELD_BYTES = 1.5 * GIB


def _find_unowned(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A table in which an idle card's memory is taken and no process is listed: whoever holds it is not shown."""
    gpus = evidence.machine.gpus
    said = text.find(RAN_OUT) or text.find(_ABOUT_MEMORY)
    if said is None or isinstance(gpus, Absent):
        return
    for gpu in gpus:
        used, load, processes = gpu.memory_used_bytes, gpu.utilization_percent, gpu.processes
        if isinstance(used, Absent) or isinstance(load, Absent):
            continue
        nobody = text.find(_NO_ROWS) is not None if isinstance(processes, Absent) else not processes
        if used > _HELD_BYTES and load == 0 and nobody:
            value = f"{format_bytes(used)} in use at 0 %, no process listed"
            yield Finding(
                id="oom_other_process",
                confidence=0.86,
                severity="broken" if text.find(RAN_OUT) else "warning",
                evidence=(observe(f"GPU {gpu.index}", value, "nvidia-smi"), quote(said, "memory")),
            )
            return


_RAN_DRY = words(
    r"\b(?:had |has |have )?(?:already )?r[au]n(?:s|ning)? (?:out|dry)\b",
    r"\b(?:not|n't) (?:\w+ ){0,2}enough\b|\binsufficient\b",
    "不够|不足",
)
_READS = words(r"\btrain\w*|\bload\w*|\bdata ?sets?\b|\bdataloaders?\b|\bepochs?\b|\bpre-?process\w*|训练|加载|数据")
_ON_CARD = words(r"\bvram\b|\bgpu (?:memory|ram|mem)\b|\bcuda (?:out|memory)\b|显存")
# what is advised did not happen
_NOT_TOLD = words(
    r"\bif\b|\brecommend\w*|\bshould\b|\bat least\b",
    r"\bvram\b|\bgpu (?:memory|ram|mem)\b|\bcuda out\b|\bcuda memory\b|显存",
)


def _find_dry(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The host's memory was not enough, said over more than one sentence."""
    del evidence
    if not about_training(text) or text.find(RAN_OUT):
        return
    dry = together(text, HOST_MEMORY, _RAN_DRY, _READS, around=1, without=_NOT_TOLD)
    if dry:
        yield Finding(id="host_oom_killed", confidence=0.66, evidence=(quote(dry, "memory"),))


_GOES_DOWN = words(
    r"\b(?:system|machine|computer|server|pc|os|workstation) (?:\w+ ){0,2}(?:crash\w*|freez\w*|froze|hangs?|reboots?|"
    r"dies|goes down)\b|死机|宕机"
)


def _find_swallowed(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The host's memory grows until the whole machine goes down: no defect is needed for that."""
    del evidence
    grows = together(text, HOST_MEMORY, GROWS)
    down = text.find(_GOES_DOWN)
    if grows and down and together(text, _GOES_DOWN, HOST_MEMORY, around=1) and about_training(text):
        both = (quote(grows, "memory"), quote(down, "machine"))
        yield Finding(id="host_memory_leak", confidence=0.94, evidence=tuple(dict.fromkeys(both)))


_CLIMBS = words(
    r"\bmemory\b[^.\n]{0,40}\b(?:grow\w*|grew|increas\w*|ris\w*|rose|climb\w*|goes up|went up)\b",
    r"内存[^。\n]{0,10}(?:增|涨|升)",
)
_GIVEN_BACK = words(
    r"\b(?:drops?|dropped|falls?|fell|goes|returns?|returned|released|freed|back)\b[^.\n]{0,40}\b(?:after|when|once|as|at|"
    r"end)\b[^.\n]{0,24}(?:\bepochs?\b|\bit\b)",
    r"\bafter (?:each|every|the|one|an) epoch\b[^.\n]{0,30}\b(?:drops?|falls?|released|freed|back|normal)\b",
)
_WITHIN = words(r"\b(?:during|within|in|over|of|per) (?:\w+ ){0,3}epoch\b")


def _find_given_back(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Memory that grows within an epoch and is back at its end: the workers end then, and it was theirs."""
    del evidence
    grows = together(text, _CLIMBS, _WITHIN, around=1)
    if grows and together(text, _CLIMBS, _GIVEN_BACK, around=1) and not text.find(_ON_CARD):
        yield Finding(
            id="worker_copy_on_write_growth", confidence=0.72, severity="warning", evidence=(quote(grows, "memory"),)
        )


_RESUMES = words(
    r"\bresum\w*|\b(?:load\w*|restor\w*) (?:\w+ ){0,3}(?:checkpoint|ckpt|state|weights|model)\b",
    r"\bcheckpoint\b|断点|恢复训练",
)
_FIRST_CARD = words(r"\bgpu ?[:#-]?0\b|\bcuda:0\b|\bfirst (?:gpu|card)\b|\brank ?0\b|0 ?号卡|第一张卡")
_EACH_A_PROCESS = words(r"\bDDP\b|DistributedDataParallel|\bdistributed\b|\btorchrun\b|\bmulti-?gpu|多卡")


def _find_resumed(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The first card is full when a checkpoint is loaded by each process: it goes back to where it was saved from."""
    del evidence
    fuller = words(
        r"out of memory|\booms?\b|\bmore memory\b|\bmemory\b[^.\n]{0,30}\b(?:more|full|high\w*|twice|double)"
    )
    said = together(text, _FIRST_CARD, _RESUMES, fuller) if text.find(_EACH_A_PROCESS) else None
    if said:
        sure = 0.8 if together(text, _FIRST_CARD, words(r"\bothers?\b|\brest\b|其他")) else 0.6
        yield Finding(
            id="extra_contexts_on_gpu0",
            confidence=sure,
            severity="broken" if text.find(RAN_OUT) else "warning",
            evidence=(quote(said, "first GPU"),),
        )


FINDERS = (
    text_finder("oom_other_process", _find_unowned),
    text_finder("oom_other_process", _find_late),
    text_finder("host_oom_killed", _find_dry),
    text_finder("host_memory_leak", _find_swallowed),
    text_finder("worker_copy_on_write_growth", _find_given_back),
    text_finder("extra_contexts_on_gpu0", _find_resumed),
)
