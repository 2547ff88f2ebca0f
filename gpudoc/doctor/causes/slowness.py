"""Slowness that somebody describes in words, without a log that has numbers: who waits for whom, and when."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.memory import RAN_OUT
from gpudoc.doctor.causes.sign import about_training, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.readers.model import Text

_LOADER = words(
    r"data ?-?_?loaders?\b",
    r"(?:data|batch|image|sample|input)s? ?-?(?:loading|fetching|reading|provid\w+|pipeline|prefetch\w*)\b",
    r"(?:load|read|fetch)(?:s|ing)? (?:the |of |my )*(?:data|batch\w*|images?|samples?|files?)\b",
    r"\bnum_?work(?:er)?s?\b",
    r"\bcollat\w+",
    r"\baugu?ment\w*|\bpre-?process\w*",
    r"数据加载|读取数据|加载数据",
)
# the device has nothing to do, or the next batch is not there yet
_STARVED = words(
    r"gpu[^.\n]{0,50}(?:\bidle|\bwait\w*|starv\w*|\b0 ?%|drops? to|not (?:fully )?(?:used|utili[sz]ed|busy))",
    r"(?:gpu|volatile)[- ]?util\w*[^.\n]{0,40}(?:\b\d ?%|\b[1-4]\d ?%|low\b|zero|jump\w*|fluctuat\w*|unstable)",
    r"low[^.\n]{0,20}(?:gpu )?util\w*",
    r"util\w* (?:rate )?of (?:the |my |all )?gpus?[^.\n]{0,30}(?:\blow\b|\b[1-4]?\d ?%)",
    r"\bgpu (?:runs|works|is) (?:on|at|only) [^.\n]{0,8}\b[1-5]?\d ?(?:- ?\d+ ?)?%",
    r"gpu utility[^.\n]{0,16}\blow\b",
    r"(?:loader|loading|workers?|cpus?)[^.\n]{0,40}(?:can ?not|can't|unable to|fails? to|doesn't|does not) "
    r"(?:provide|keep up|feed|supply|deliver|catch up)",
    r"wait(?:s|ing|ed)? (?:for|on) (?:the |new |next |more )*(?:data|batch\w*|loader|worker\w*|input)",
    r"(?:data ?-?_?loader|data loading|loading)[^.\n]{0,60}(?:bottleneck|slow\w*|lag\w*|takes?|"
    r"consum\w*|spen\w+|stuck)",
    r"(?:bottleneck|slow\w*|lag\w*|consumed|spen[dt]\w*|time)[^.\n]{0,60}(?:data ?-?_?loader|data loading|loading)",
    r"利用率[^。\n]{0,12}(?:低|为 ?0|0%)",
)


def _find_starved(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The loader is spoken of, and the device waits: somewhere in the input pipeline, no narrower place is known."""
    del evidence
    if not about_training(text):
        return
    loader, starved = text.find(_LOADER), text.find(_STARVED)
    if loader and starved:
        seen = (quote(starved, "waits"), quote(loader, "input"))
        yield Finding(
            id="dataloader_bottleneck", confidence=0.55, severity="warning", evidence=tuple(dict.fromkeys(seen))
        )


_FULL = words(
    r"(?:dedicated|vram|video memory|gpu memory)[^.\n]{0,60}(?:nearly |almost |is |at |"
    r"being )*(?:\bfull\b|maxed|the limit|"
    r"used up|consumed|overflow\w*|exceed\w*|exhaust\w*)",
    r"(?:too little|not enough|insufficient|out of|run(?:s|ning)? out of|low) (?:dedicated )?v?ram\b",
    r"dedicated[^.\n]{0,40}(?:memory|momery|ram|gb)\b",
    r"\b(\d{1,2})(?:\.\d)? ?(?:/|of|out of) ?\1(?:\.\d)? ?g(?:i?b)?\b",
)
_WDDM = words(r"\bwindows\b", r"\bwin ?1[01]\b", r"\bwsl2?\b", r"task manager", r"gpu-z", r"\bwddm\b")


def _find_spill(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """On Windows a full card slows down instead of failing."""
    del evidence
    full, slow, system = text.find(_FULL), text.find(_CRAWLS), text.find(_WDDM)
    if full and slow and system and not text.find(RAN_OUT):
        seen = (quote(full, "memory"), quote(slow, "speed"), quote(system, "system"))
        yield Finding(
            id="vram_spill_to_system_memory",
            confidence=0.68,
            severity="warning",
            evidence=tuple(dict.fromkeys(seen)),
        )


_CRAWLS = words(
    r"\b(?:very|so|extremely|dramatic\w*|incredibly|terribly|super|crazy|much|way) slow\w*",
    r"slow(?:s|ed|ing)? (?:way )?down",
    r"\b\d{2,}(?:\.\d+)? ?s(?:ec\w*)?/(?:it|step)\b",
    r"\d+ ?(?:x|times) slower",
    r"\d{2,} ?(?:hours|hrs)\b",
)


FINDERS = (
    text_finder("dataloader_bottleneck", _find_starved),
    text_finder("vram_spill_to_system_memory", _find_spill),
)
