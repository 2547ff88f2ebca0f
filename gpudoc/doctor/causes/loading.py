"""More loader workers than CPUs, and memory that grows, by what a text says of them."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.memory import SPILLS
from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import about_training, by_text, quote, words
from gpudoc.doctor.model import Finding, Skip, observe
from gpudoc.doctor.vocabulary import Listed
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

# "num_workers=16" on "8 cores", or "--num_workers 32" in each of "--nproc_per_node=8" processes
_ASKED = Pattern(
    r"(?i)\b(?:(\d{1,3}) (?:worker |loader |loading )?(?:processes|workers|threads)\b|"
    r"(?:dataloader_|data_)?(?:num_?workers?|workers)\W{1,4}(\d{1,3})\b)"
)
_PROCESSES = Pattern(r"(?i)\bn_?proc_?(?:per_?node)?[= ](\d{1,2})\b")
_CPUS = Pattern(r"(?i)\b(\d{1,3})[- ](?:logical |physical )?v?(?:cpu|core)s?\b(?! ?%)")
_FOR_LOADING = words(r"\bload\w*|\bpre-?process\w*|workers?\b|data ?loader|\baugment\w*")


def _find_crowd(text: Text) -> Iterator[Finding | Skip]:
    """More loader workers in all processes than CPUs, by the numbers that the text names."""
    asked, cpus, processes = text.find(_ASKED), text.find(_CPUS), text.find(_PROCESSES)
    if asked is None or cpus is None or not about_training(text) or not text.find(_FOR_LOADING):
        return
    workers = int(asked[1] or asked[2]) * (int(processes[1]) if processes else 1)
    if workers > int(cpus[1]):
        seen = observe("loader", f"{workers} loader workers in all for {cpus[1]} CPUs", asked.line.origin)
        yield Finding(id="too_many_workers", confidence=0.75, severity="warning", evidence=(seen,))


_GROWS = Listed("loader-grows")
_HOST_SIDE = Listed("loader-host-side")
_DEVICE_SIDE = Listed("loader-device-side")
_ENDED = words(r"CUDA out of memory", r"\boom\b", r"oom[-_ ]?kill\w*", r"\bkilled\b", r"out of memory")
_KILLED_ONLY = words(r"oom[-_ ]?kill\w*", r"\bkilled\b")
_DEVICE_RAN_OUT = words("CUDA out of memory", r"gpu[^.\n]{0,20}out of memory", r"OutOfMemoryError")
# what forked workers copy are Python's own objects, and without workers nothing grows
_COPIED = Listed("loader-copied")
_NO_WORKERS = words(r"\bnum_?workers?\W{1,5}(?:to )?0\b|\bwithout (?:loader )?workers\b")
_FLAT = words(
    r"\b(?:flat|stable|constant|fine|stays?|ok|okay|nothing|no|not|but|whereas|while (?:with|for|using|at))\b|n't"
)
# the same without workers, or in one process that is none of them
_NOT_IN_WORKERS = Listed("loader-not-in-workers")
_EACH_STEP = words(
    r"(?:every|each|per|with) (?:\w+ )?(?:step|iteration|epoch|batch)",
    r"(?:steadily|constantly|continu\w*|keeps?|more and more|unlimit\w*|endless\w*|ceaseless\w*)",
    r"until (?:it |the gpu )?(?:oom|out of memory|runs? out|nothing|crash\w*)",
)
# one batch that is larger than the others, not something that stays
_AT_ONCE = words(r"sudden\w* (?:\w+ ){0,2}(?:increas|ris|jump|grow)\w*", r"(?:increas|ris|grow)\w* sudden\w*")
_GROWS_IN_EVAL = words(
    r"\b(?:during|in|at|each|every) (?:the )?(?:validation|evaluation|eval|val)\b.{0,80}"
    r"\b(?:memory|vram)\b.{0,40}(?:grow\w*|increas\w*|leak\w*|until)",
    r"\b(?:validation|evaluation|eval)\b[^.\n]{0,80}more and more (?:\w+ ){0,2}(?:memory|vram)",
    r"\bmemory\b[^.\n]{0,40}(?:grow\w*|increas\w*|leak\w*)[^.\n]{0,40}\b(?:validation|evaluation|eval)\b",
)
_KEEPS = Listed("loader-keeps")
# what is as long as somebody spoke: the longest so far decides how much memory is held from then on
_AS_LONG = words(
    r"\b(?:asr|speech|utterances?|wav2vec\w*|hubert|whisper|audio|seq2seq|translation|dialogues?|summari[sz]ation)\b",
    "aishell|librispeech|common ?voice",
)


def _find_growth(text: Text) -> Iterator[Finding | Skip]:
    grows = text.find(_GROWS)
    keeps = text.find(_KEEPS)
    if text.find(SPILLS) or not (about_training(text) or text.find(_DEVICE_SIDE)):
        return
    over = text.find(_ENDED)
    # the kernel kills for the host's memory, the allocator raises for the device's
    killed = over is not None and text.find(_KILLED_ONLY) is not None and not text.find(_DEVICE_RAN_OUT)
    if grows is None:
        if keeps and over:
            yield Finding(id="leak_graph_kept", confidence=0.8, evidence=(quote(keeps, "kept"), quote(over, "effect")))
        return
    if text.find(_AT_ONCE) and not keeps:
        return
    device, host = text.find(_DEVICE_SIDE), text.find(_HOST_SIDE)
    if keeps or (device and not host) or (over and not host and not killed and about_training(text)):
        seen = (quote(grows, "memory"),) + ((quote(keeps, "kept"),) if keeps else ())
        each = text.find(_EACH_STEP)
        # what grows only while it validates keeps the graphs that nobody needs there
        graphs = "oom_eval_without_no_grad" if not keeps and text.find(_GROWS_IN_EVAL) else "leak_graph_kept"
        # inputs of any length make memory climb too, without anything being kept
        sure = 0.85 if keeps else 0.55 if over and text.find(_AS_LONG) else 0.8 if each else 0.66
        yield Finding(id=graphs, confidence=sure, evidence=seen)
    if host and not keeps and about_training(text):
        workers = text.find(
            words(
                r"\bworkers?\b",
                "num_workers",
                "DataLoader",
                "copy[- ]on[- ](?:write|access|read)",
                "refcount",
                "fork",
            )
        )
        alone = text.find(_NOT_IN_WORKERS) or together(text, _GROWS, _NO_WORKERS, without=_FLAT)
        in_workers = workers and not alone
        sure = 0.8 if in_workers and not device else 0.55
        # what a program that was killed tells of its workers says little: any memory of the host may have been used up
        surer = in_workers and over and (not killed or text.find(_COPIED))
        yield Finding(
            id="worker_copy_on_write_growth" if in_workers else "host_memory_leak",
            confidence=max(sure, 0.9) if surer else 0.6 if killed else sure,
            severity="broken" if over else "warning",
            evidence=(quote(grows, "memory"),),
        )


FINDERS = (
    by_text("too_many_workers", _find_crowd),
    by_text("leak_graph_kept", _find_growth),
)
