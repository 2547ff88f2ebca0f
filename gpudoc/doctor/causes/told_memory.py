"""Memory as people tell of it, without a message that has numbers: whose it is, and what became of the program."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.lexicon import (
    AS_LONG,
    BY_HAND,
    DEVICE_MEMORY,
    ENDED,
    FULL,
    GROWS,
    HOST_MEMORY,
    KEPT,
    KILLED,
    LOADS,
    LOW_USE,
    WITHIN_RUN,
)
from gpudoc.doctor.causes.memory import RAN_OUT
from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import about_training, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.readers.model import Text

_NOTEBOOK_DIES = words(
    r"\b(?:session|kernel|runtime|notebook|colab|kaggle|jupyter)\b[^.\n]{0,40}\b(?:crash\w*|dies|died|dead|restart\w*)",
)
_SYSTEM_DIES = words(
    r"\b(?:o/?s|computer|machine|pc|system|ubuntu|windows)\b[^.\n]{0,24}\b(?:crash|re-?boot|re-?start)\w*"
)
_RAN_ONLY = words(r"using all available RAM|all (?:of )?the (?:available )?ram\b")
# the driver and NCCL end programs too, and say so
_OTHER_END = words(
    r"CUDA error|device-side|illegal memory",
    r"Watchdog caught|collective operation timeout",
    r"segmentation fault|\bSIGSEGV\b|bus error|shared memory|/dev/shm",
    r"time limit|\bpreempt\w*|\bscancel\b",
)
_MEMORY = words(r"\bmemory\b|\bram\b|\bmem\b|\boom\b|内存")


_NOT_DEVICE = words(r"\b(?:not|no|instead of|isn't|rather than) (?:the |my )?(?:gpu|cuda|video|vram)\b|不是显存")


def _find_killed(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A program that was killed, and nobody says by whom: the kernel does that when the host's memory is used up."""
    del evidence
    if text.find(_OTHER_END) or not (about_training(text) or text.find(HOST_MEMORY)):
        return
    killed = together(text, KILLED, without=BY_HAND)
    if (
        killed is None
        or together(text, DEVICE_MEMORY, KEPT)
        or together(text, KILLED, DEVICE_MEMORY, without=_NOT_DEVICE)
    ):
        return
    full = together(text, HOST_MEMORY, FULL) or together(text, HOST_MEMORY, GROWS)
    loading = together(text, KILLED, LOADS, without=BY_HAND, around=1)
    if text.find(RAN_OUT) and full is None:
        return
    seen = (quote(killed, "ended"),) + ((quote(full, "memory"),) if full else ())
    sure = 0.91 if full else 0.82 if loading else 0.72 if text.find(_MEMORY) else 0.62
    yield Finding(id="host_oom_killed", confidence=sure, evidence=tuple(dict.fromkeys(seen)))


_OUT_OF_HOST = words(
    r"\bout of (?:the )?(?:cpu|host|system|main|physical) (?:memory|ram)\b|\bout of ram\b|\bout of \(?cpu\)? ?memory",
    r"\bout of memory (?:of|on|in) (?:the |my )?(?:cpu|host|ram|system)\b|\b(?:ram|cpu|host|"
    r"system)(?: memory)? ooms?\b",
    r"\b(?:cpu|host|system|main) (?:memory|ram) (?:is |was |gets )*(?:overflow\w*|exhaust\w*|oom|used up)\b",
)


def _find_out_of_host(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The host's memory ran out, in so many words."""
    del evidence
    out = text.find(_OUT_OF_HOST)
    if out and not together(text, HOST_MEMORY, GROWS):
        yield Finding(id="host_oom_killed", confidence=0.74, evidence=(quote(out, "memory"),))


def _find_notebook(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A hosted notebook that starts again without an error has used up the memory of its machine."""
    del evidence
    died = together(text, _NOTEBOOK_DIES, _NOTEBOOK_DIES, without=_SYSTEM_DIES)
    if died is None or text.find(_OTHER_END) or text.find(words(r"Traceback \(|\w+Error:", "CUDA out of memory")):
        return
    ram = text.find(_RAN_ONLY) or together(text, HOST_MEMORY, FULL)
    if ram or about_training(text):
        seen = (quote(died, "ended"),) + ((quote(ram, "memory"),) if ram else ())
        yield Finding(id="host_oom_killed", confidence=0.9 if ram else 0.55, evidence=tuple(dict.fromkeys(seen)))


def _find_full(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The host's memory fills up, grows or is not given back, in the main process as far as anybody can tell."""
    del evidence
    if not about_training(text):
        return
    grows = together(text, HOST_MEMORY, GROWS, without=words(r"\bgpu (?:memory|ram)\b|\bvram\b|显存"))
    kept = together(text, HOST_MEMORY, KEPT, without=words(r"\bgpu (?:memory|ram)\b|\bvram\b|显存"))
    full = together(text, HOST_MEMORY, FULL, without=words(r"\bgpu (?:memory|ram)\b|\bvram\b|cuda out of|显存"))
    trouble = text.find(_TROUBLE)
    if grows or kept:
        said = grows or kept
        assert said is not None
        yield Finding(
            id="host_memory_leak",
            confidence=0.7 if trouble else 0.55,
            severity="broken" if trouble and full else "warning",
            evidence=(quote(said, "memory"),),
        )
    elif full and trouble:
        yield Finding(
            id="host_memory_leak",
            confidence=0.6,
            evidence=tuple(dict.fromkeys((quote(full, "memory"), quote(trouble, "effect")))),
        )
    elif full and text.find(_WONDERS):
        yield Finding(id="host_memory_leak", confidence=0.48, severity="warning", evidence=(quote(full, "memory"),))


_TROUBLE = words(
    r"\b(?:crash|hang|hung|freez|stuck|kill|die|dead|fail|interrupt)\w*",
    r"\bOOM\b|out of memory|run(?:s|ning)? out|MemoryError",
    r"problem|issue|\bstays? there|\bstops?\b",
)


_WONDERS = words(r"\bwhy\b|\bwonder\w*|\bhow (?:can|to|do)\b|\bhelp\b|\bnormal\b|\btoo much\b|\breduc\w*|\bease\b")
_TOO_MUCH = words(
    r"\b(?:too much|a lot of|lots of|so much|huge|large amount of|not enough|insufficient|all (?:of )?(?:the|"
    r"my)) (?:\w+ )?(?:memory|ram)\b"
)


def _find_loaded(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Reading the data takes more memory than there is, and no device is spoken of."""
    del evidence
    loaded = together(text, _TOO_MUCH, LOADS)
    if loaded and text.find(_TROUBLE) and not text.find(DEVICE_MEMORY) and not text.find(RAN_OUT):
        yield Finding(id="host_oom_killed", confidence=0.6, evidence=(quote(loaded, "memory"),))


_TOO_LITTLE = words(
    r"(?:\bnot|n't|\bnever|\bstopped being|\bno longer) (?:have |has |be |being )?enough\b|\binsufficient\b|"
    r"\bshortage\b|"
    r"\btoo (?:little|small)\b"
)


def _find_scarce(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The card's memory is said not to be enough, without the message that would say by how much."""
    del evidence
    scarce = together(text, _TOO_LITTLE, DEVICE_MEMORY)
    if scarce and about_training(text) and not text.find(RAN_OUT) and not text.find(_CRAWLS):
        yield Finding(id="oom_capacity", confidence=0.6, evidence=(quote(scarce, "memory"),))


_CRAWLS = words(r"\bslow\w*|\b\d{2,}(?:\.\d+)? ?s(?:ec\w*)?/(?:it|step)|慢")


def _find_outlived(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The device's memory stays taken after the program: a process of it is still there."""
    del evidence
    kept = together(text, KEPT, DEVICE_MEMORY, ENDED, around=1, without=WITHIN_RUN)
    if kept is None or together(text, KEPT, DEVICE_MEMORY) is None:
        return
    yield Finding(
        id="oom_other_process",
        confidence=0.83,
        severity="broken" if text.find(RAN_OUT) or text.find(_NO_MORE) else "warning",
        evidence=(quote(kept, "memory"),),
    )


_NO_MORE = words(
    r"(?:can ?not|can't|unable to|couldn't) (?:even )?(?:run|start|train|use|launch)",
    r"memory (?:\w+ ){0,2}full",
    "out-of-memory",
)
_SHARED = words(
    r"\b(?:us(?:e|es|ed|ing)|spill\w*|tak\w*|consum\w*|into|goes? to|by|in|fills?|instead of)\b[^.\n]{0,40}"
    r"\bshared (?:gpu |video |graphics |system )?(?:memory|mem|vram|ram)\b",
    r"\bshared (?:gpu |video |graphics |system )?(?:memory|mem|vram|ram)\b[^.\n]{0,40}\b(?:us(?:e|es|ed|ing|age)|"
    r"consum\w*|tak\w*|fill\w*|instead|rather|\d+ ?gb?)\b",
    r"共享(?:GPU)?(?:显存|内存)",
)
_WDDM = words(r"\bwindows\b|\bwin ?1[01]\b|\bwin(?:7|8)\b|\bwsl2?\b|task manager|\bdirectx\b|directml|wddm")
_SLOW = words(
    r"\bslow\w*|\b\d{2,}(?:\.\d+)? ?s(?:ec\w*)?/(?:it|step)|performance|\bhours?\b|\bspeed\b|\btimes longer",
    r"慢|耗[时時]",
)


def _find_spill(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """On Windows a card that is full takes the host's memory and becomes slow; a container's /dev/shm is another."""
    del evidence
    if text.find(words(r"/dev/shm|\bdocker\b|bus error|shm")) is not None:
        return
    shared, slow, system = text.find(_SHARED), text.find(_SLOW), text.find(_WDDM)
    on_card = text.find(DEVICE_MEMORY)
    if shared and system and slow and on_card:
        seen = (quote(shared, "memory"), quote(slow, "speed"), quote(system, "system"))
        yield Finding(
            id="vram_spill_to_system_memory",
            confidence=0.82,
            severity="warning",
            evidence=tuple(dict.fromkeys(seen)),
        )
        return
    full = together(text, DEVICE_MEMORY, FULL) or text.find(words(r"显存[^。\n]{0,8}满|顯存[^。\n]{0,8}滿"))
    idle = text.find(LOW_USE)
    if full and idle and slow and system and not text.find(RAN_OUT):
        seen = (quote(full, "memory"), quote(idle, "device"), quote(system, "system"))
        yield Finding(
            id="vram_spill_to_system_memory",
            confidence=0.66,
            severity="warning",
            evidence=tuple(dict.fromkeys(seen)),
        )


_KEEPS_GRAPH = words(r"\w*loss\w* ?\+=", r"\.append\(", "retain_graph", "detach", r"\.item\(\)", "leak")


def _find_longest(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Device memory that climbs until it runs out, in a program whose inputs have any length."""
    del evidence
    climbs = together(text, GROWS, words(r"\bmemory\b|\bvram\b|显存"))
    ran_out, lengths = text.find(RAN_OUT), text.find(AS_LONG)
    if climbs and ran_out and lengths and not text.find(_KEEPS_GRAPH) and not text.find(HOST_MEMORY):
        seen = (quote(climbs, "memory"), quote(lengths, "inputs"))
        yield Finding(id="oom_variable_length_batch", confidence=0.82, evidence=tuple(dict.fromkeys(seen)))


FINDERS = (
    text_finder("host_oom_killed", _find_killed),
    text_finder("host_oom_killed", _find_out_of_host),
    text_finder("host_oom_killed", _find_notebook),
    text_finder("host_memory_leak", _find_full),
    text_finder("host_oom_killed", _find_loaded),
    text_finder("oom_capacity", _find_scarce),
    text_finder("oom_other_process", _find_outlived),
    text_finder("oom_variable_length_batch", _find_longest),
    text_finder("vram_spill_to_system_memory", _find_spill),
)
