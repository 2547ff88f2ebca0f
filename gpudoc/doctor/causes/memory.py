"""GPU memory that ran out: first the arithmetic of the message, then the place in the program."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from gpudoc.doctor.causes import allocator
from gpudoc.doctor.causes.allocator import OutOfMemory
from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import Listed, by_text, quote, words
from gpudoc.doctor.model import Finding, Observation, Remedy, Skip, observe
from gpudoc.doctor.remedies import do
from gpudoc.facts.readers.model import CleanText
from gpudoc.patterns import Pattern
from gpudoc.units import GIB, format_bytes

RAN_OUT = Listed("ran-out")
# messages without the device, in a text that names one elsewhere
_BARE = words(r"out of memory", r"memory (?:\w+ ){0,2}(?:explod\w+|overflow\w*|blow\w* up|is exhausted)")
_ON_DEVICE = words(r"\bgpus?\b", r"\b[1-5]0[5-9]0(?: ?ti)?\b", r"\b[RG]TX\b", r"\bcuda\b", r"\bvram\b", "显存")
_ON_CARD = words(r"\bvram\b|CUDA out|gpu (?:memory|oom|ram)|cuda (?:memory|oom)|显存")
_BARE_OOM = words(r"\booms?\b")
_HOST_MEMORY = words(
    r"\b(?:cpu|host|system|main|physical|computer|machine|server|pc|node)(?:'s)?[- ]?(?:memory|ram|mem)\b",
    r"(?<!gpu)(?<!gpu\x20)(?<!cuda\x20)(?<!graphics\x20)(?<!video\x20)(?<!\dg)(?<!\dgb)\bram\b",
    r"\brss\b",
    r"\bswap\b",
    # memory that a text contrasts with the card's own is the host's
    r"\bmemory\b(?=[^.\n]{0,30}\b(?:but|while|whereas)\b[^.\n]{0,20}\b(?:gpu|graphics|video|vram)\b)",
    r"(?:memory|mem) (?:usage )?(?:of|on) (?:the |my |our )?(?:server|machine|computer|host|cpu|node|pc)\b",
    r"(?<!GPU)(?<!GPU\x20)(?:内存|內存|記憶體)",
)
_FILLS = words(r"\b(?:increas|grow|leak|releas|full|exceed|highest|ris|fill|climb)\w*")
_HOST = Listed("oom-host")
_OPTIMIZER = Listed("oom-optimizer")
_ACCUMULATES = Listed("oom-accumulates")
_EVALUATING = Listed("oom-evaluating")
# "max mem: 14655" at the end of each logged step
_PEAKS = Pattern(r"(?im)^(?P<head>[^\n]*?)\bmax[_ ]mem\w*\W{1,3}(?P<peak>\d+)")
_NO_GRAD_USED = words(
    r"decorate_context",
    r"autograd/grad_mode\.py",
    r"with torch\.(?:no_grad|inference_mode)",
    r"torch/utils/_contextlib\.py",
)
_NO_GRAD_ADDED = words(
    r"(?:without|forg[eo]t\w*|miss\w*|add\w*|wrap\w*|need\w*|lack\w*|should) .{0,30}(?:no_grad|inference_mode)"
)
_NO_GRAD_LACKS = words(
    r"(?:without|forgot\w*|miss\w*|no|add\w*|wrap\w*|use|using|need\w*|lack\w*) .{0,30}(?:no_grad|inference_mode)",
    r"no_grad",
    r"volatile=True",
)
_VARIABLE = Listed("oom-variable")
_GROWS = Listed("gpu-memory-grows")
_FINDER = Listed("oom-finder")
_OTHERS = Listed("oom-others")
_RISING_STEPS = 4
# with less than this share of the card in use, nothing has piled up
_NEARLY_NOTHING = 0.1
# a process holds more than the card has if the driver moved a part of it to the host
_SPILLED = 1.1
_BATCH = Pattern(
    r"(?i)(?:per_device_train_batch_size|micro_batch_size|train_batch_size|batch[_ -]?size)\W{1,4}(\d{1,5})\b"
)
_PROGRESS = (
    Pattern(r"(?:\b|\|\s?)(\d{1,7})/(\d{1,7})\s*\[(?:\d+:)?\d+:\d+<"),
    Pattern(r"(?i)\b(\d{1,7})\s?/\s?(\d{2,7})\b[^\n]{0,60}\b(?:loss|acc|ppl|lr)\b"),
)
SPILLS = words(r"shared gpu memory", r"sysmem fallback", r"(?:now|but) (?:it )?(?:runs|works|continues) .{0,30}slow\w*")


def _find_oom(text: CleanText) -> Iterator[Finding | Skip]:
    said = text.find(RAN_OUT) or (text.find(_BARE) if text.find(_ON_DEVICE) else None)
    if said is not None and not allocator.read(text) and text.find(SPILLS):
        return  # memory that spills over is the opposite of an error
    if said is None or (text.find(_HOST) and not Pattern("(?i)cuda|hip|gpu").search(said[0])):
        return
    bare = said[0].lower() in ("oom", "out of ram")
    if bare and (
        together(text, _HOST_MEMORY, _BARE_OOM, without=_ON_CARD)
        or (text.find(_ON_CARD) is None and together(text, _HOST_MEMORY, _FILLS))
    ):
        return
    messages = allocator.read(text)
    # a headline that quotes the message has only a figure or two of it
    whole = (one for one in messages if one.request is not None and one.total is not None)
    message = next(whole, messages[0] if messages else None)
    seen = (quote(said, "error"), *(_numbers(message) if message else ()))
    yield from _by_numbers(text, message, seen)
    if message and _is_beyond(message):
        return  # the place of the request does not matter
    yield from _by_place(text, seen)
    yield from _by_growth(text, seen)
    yield Finding(id="oom_capacity", confidence=0.68, evidence=seen, fix=advice(text, message))


def _by_numbers(
    text: CleanText, message: OutOfMemory | None, seen: tuple[Observation, ...]
) -> Iterator[Finding | Skip]:
    total = (message.total or 0) if message else 0
    others = sum(size for _, size in message.strangers) if message else 0
    outside = (message.outside or 0) if message else 0
    said = text.find(_OTHERS)
    if message and total and others > 0.2 * total:
        pid, size = max(message.strangers, key=lambda o: o[1])
        title = f"Another process ({pid}) holds {format_bytes(size)} of the card's {format_bytes(total)}"
        yield Finding(id="oom_other_process", confidence=0.93, title=title, evidence=seen)
    elif total and max(outside - (2.5 * GIB if message and message.own is None else 0), 0) > 0.25 * total:
        yield Finding(id="oom_other_process", confidence=0.85, evidence=seen)
    elif said:
        yield Finding(id="oom_other_process", confidence=0.8, evidence=(*seen, quote(said)))
    held = (message.allocated or 0) if message else 0
    if total and held > _SPILLED * total:
        title = f"PyTorch holds {format_bytes(held)} on a card of {format_bytes(total)}: the rest is in host memory"
        yield Finding(id="oom_capacity", confidence=0.9, title=title, evidence=seen)
    if message and message.limit and held + (message.request or 0) > message.limit:
        title = f"The program limits itself to {format_bytes(message.limit)} of the card's {format_bytes(total)}"
        yield Finding(id="oom_capacity", confidence=0.92, title=title, evidence=seen)
    if message and _is_beyond(message):
        title = f"{format_bytes(message.request or 0)} were asked for at once, on a card of {format_bytes(total)}"
        yield Finding(id="oom_capacity", confidence=0.94, title=title, evidence=seen, fix=advice(text, message))
    spare = message.unallocated if message else None
    request = message.request if message else None
    if spare is not None and request and total and spare > max(request, 0.15 * total):
        title = f"{format_bytes(spare)} are reserved but unused, in pieces smaller than {format_bytes(request)}"
        yield Finding(id="oom_fragmentation", confidence=0.91, title=title, evidence=seen)


def _is_beyond(message: OutOfMemory) -> bool:
    """Whether one request is larger than the whole card, although the card is nearly empty."""
    request, total, held = message.request, message.total, message.allocated
    if request is None or total is None or held is None:
        return False
    return request > total and held < _NEARLY_NOTHING * total


def _by_growth(text: CleanText, seen: tuple[Observation, ...]) -> Iterator[Finding | Skip]:
    """Peaks that rise from one logged step to the next until the end: a part of each step stays in memory."""
    peaks = list(text.find_all(_PEAKS))
    values = [int(p["peak"]) for p in peaks]
    if len(values) >= _RISING_STEPS and all(a < b for a, b in itertools.pairwise(values)):
        evaluating = Pattern(r"(?i)\b(?:eval|valid|test|val)").search(peaks[-1]["head"])
        cause = "oom_eval_without_no_grad" if evaluating else "leak_graph_kept"
        rise = observe("peak per step", f"{values[0]} to {values[-1]} MiB", peaks[-1].line.origin)
        yield Finding(id=cause, confidence=0.85, evidence=(*seen, rise))


def _by_place(text: CleanText, seen: tuple[Observation, ...]) -> Iterator[Finding | Skip]:
    places = (
        ("oom_after_batch_size_finder", _FINDER, 0.88),
        ("oom_eval_accumulates_predictions", _ACCUMULATES, 0.9),
        ("oom_optimizer_state", _OPTIMIZER, 0.84),
    )
    for name, pattern, sure in places:
        said = text.find(pattern)
        if said:
            yield Finding(id=name, confidence=sure, evidence=(*seen, quote(said, "where")))
    evaluating = text.find(_EVALUATING)
    if evaluating and (not text.find(_NO_GRAD_USED) or text.find(_NO_GRAD_ADDED)):
        explicit = text.find(_NO_GRAD_LACKS)
        evidence = (*seen, quote(explicit or evaluating, "where"))
        yield Finding(id="oom_eval_without_no_grad", confidence=0.92 if explicit else 0.78, evidence=evidence)
    if text.find(_GROWS) is not None:
        return  # memory that rises all the time is kept memory, not a rare large batch
    variable = text.find(_VARIABLE)
    late = [p for pattern in _PROGRESS for p in text.find_all(pattern) if int(p[1]) > 30]
    if variable or late:
        evidence = (*seen, quote(variable or late[-1], "when"))
        yield Finding(id="oom_variable_length_batch", confidence=0.76 if variable else 0.6, evidence=evidence)


def _numbers(message: OutOfMemory) -> tuple[Observation, ...]:
    rows = (
        ("asked for", message.request),
        ("in use by PyTorch", message.allocated),
        ("reserved, unused", message.unallocated),
        ("used outside PyTorch", message.outside),
        ("free", message.free),
        ("card", message.total),
        ("limit that the program set", message.limit),
    )
    value = ", ".join(f"{name} {format_bytes(size)}" for name, size in rows if size is not None)
    return (observe("allocator", value, message.line.origin),) if value else ()


def advice(text: CleanText, message: OutOfMemory | None) -> tuple[Remedy, ...]:
    """The steps if memory is truly used up, the cheapest first; with numbers if the text has them."""
    batch = text.find(_BATCH)
    first = "Make the micro batch smaller, and keep the global batch by accumulation."
    if message and message.total and message.request and (used := message.allocated):
        outside = message.outside or 0
        # the memory in use at the failure is less than the whole step needs, so hope for half of the batch at most
        share = min(0.5, 0.92 * (message.total - outside) / (used + message.request))
        if batch and int(batch[1]) > 1:
            size = int(batch[1])
            micro = max(1, min(size - 1, math.floor(size * share)))
            steps = math.ceil(size / micro)
            first = f"Use micro batch {micro} instead of {size}, with accumulation over {steps} steps (estimated)."
        else:
            first = f"Use a micro batch of at most {share:.0%} of the current one (estimated), with accumulation."
    export = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    segments = do("Let the allocator's segments grow; set this before Python starts.", export)
    return (
        do(first),
        do("Use mixed precision: torch.autocast('cuda', dtype=torch.bfloat16), float16 before capability 8.0."),
        do("Use activation checkpointing on the repeated blocks (torch.utils.checkpoint.checkpoint)."),
        # cudaMallocAsync has no segments
        *(() if message and message.is_asynchronous else (segments,)),
        do("Next, choose a smaller width, depth, sequence or image; after that, a larger GPU or several (FSDP)."),
        do("Let gpudoc measure what fits.", "gpudoc tune --model cfg.yaml"),
    )


FINDERS = (by_text("oom_capacity", _find_oom),)
