"""Whether the torch in a text has code for the GPU in it."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import (
    NOT_COMPATIBLE,
    OF_TORCH,
    UNAVAILABLE,
    built_for,
    gpu_capability,
    other_source,
    quote,
    reported,
    seen_fact,
    words,
)
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.model import Machine, known
from gpudoc.facts.readers.model import CleanText
from gpudoc.knowledge.compatibility import archs_of
from gpudoc.knowledge.wheels import fit
from gpudoc.patterns import Pattern

_FAILS = words(
    r"\berrors?\b|Error\b",
    r"\bfail\w*",
    UNAVAILABLE,
    r"(?:can ?not|can't|does ?n[o']t|is ?n[o']t|not) (?:\w+ )?(?:use|work|see|detect|find|available|recogni\w+)",
)


def _find_arch(text: CleanText, evidence: Evidence) -> Iterator[Finding | Skip]:
    machine = evidence.machine
    said = text.find(NOT_COMPATIBLE)
    # another package's kernels are missing, and the text says nothing about torch's
    if said is not None and other_source(text) is not None and text.find(OF_TORCH) is None:
        return
    archs = known(machine.torch.arch_list) or archs_of(built_for(machine))
    fits = False
    for gpu in known(machine.gpus) or ():
        capability = gpu_capability(gpu)
        if capability is None or not archs:
            continue
        match = fit(capability, archs)
        if match == "runs" or _runs_on_named(text, machine, capability):
            fits = True
            continue
        listed = known(machine.torch.arch_list) is not None
        sure = 0.95 if said else 0.85 if listed else 0.7
        if not said and not listed:
            # the wheel is only concluded from its version, or torch itself does not complain
            concluded = known(machine.torch.cuda_version) is None
            sure = 0.4 if concluded else 0.6 if machine.torch.is_available is True else sure
            if concluded and text.find(_FAILS) is None:
                continue
        name = "gpu_newer_than_wheel_archs" if match == "too_new" else "gpu_older_than_wheel_archs"
        states = f"{known(gpu.name) or 'GPU'}: {capability[0]}.{capability[1]}"
        card = seen_fact(evidence, f"gpus.{gpu.index}.capability", states)
        seen = (card, seen_fact(evidence, "torch.arch_list", " ".join(archs)))
        yield Finding(id=name, confidence=sure, evidence=(*seen, *((quote(said, "torch"),) if said else ())))
        return
    first = next(iter(known(machine.gpus) or ()), None)
    yield from _arch_by_message(text, None if fits or first is None else gpu_capability(first), fits)


_NAMED_CUDA = Pattern(r"(?i)\b(?:cuda|cudatoolkit)\W{0,3}(?:version\W{0,3})?(1[0-3])\.(\d)\b")


def _runs_on_named(text: CleanText, machine: Machine, capability: tuple[int, int]) -> bool:
    """Whether a build for the CUDA named in the text would run; False if the CUDA of torch itself is known."""
    if known(machine.torch.cuda_version) is not None or known(machine.torch.arch_list) is not None:
        return False
    named = text.find(_NAMED_CUDA)
    archs = archs_of((int(named[1]), int(named[2]))) if named is not None else ()
    return bool(archs) and fit(capability, archs) == "runs"


# AMD's cards up to Polaris and Fiji: ROCm's wheels have no code for gfx803 any more
_OLD_AMD = words(
    r"\bgfx(?:7\d\d|80\d)\b",
    r"\bRX ?[45][4-9]0X?\b",
    r"\bWX ?[2-7]100\b",
    r"\bR[79] (?:\d{3}X?|Fury|Nano)\b",
    r"\bpolaris\b",
)


def _arch_by_message(text: CleanText, capability: tuple[int, int] | None, fits: bool) -> Iterator[Finding | Skip]:
    """Messages that do not say at which end the card is beyond the list; the other messages are signatures."""
    between = text.find(words(r"minimum and maximum cuda capability supported by this library"))
    generic = text.find(words(r"no kernel image is available", "invalid device function", "NoKernelImageForDevice"))
    said = between or generic
    if said and capability is not None:
        # no wheel ever had code for both ends: an old card was dropped, a new one is not included yet
        name = "gpu_older_than_wheel_archs" if capability < (7, 5) else "gpu_newer_than_wheel_archs"
        source, sure = ("torch", 0.9) if between else ("error", 0.72)
        yield Finding(id=name, confidence=sure, evidence=(quote(said, source),))
    elif generic and fits:
        # torch's own wheel has code for this GPU, so an extension lacks it
        yield Finding(id="extension_missing_arch", confidence=0.55, evidence=(quote(generic, "error"),))
    elif generic and (polaris := text.find(_OLD_AMD)):
        seen = (quote(polaris, "GPU"), quote(generic, "error"))
        yield Finding(id="gpu_older_than_wheel_archs", confidence=0.7, evidence=seen)
    elif generic:
        yield Finding(id="gpu_newer_than_wheel_archs", confidence=0.48, evidence=(quote(generic, "error"),))
        yield Finding(id="gpu_older_than_wheel_archs", confidence=0.44, evidence=(quote(generic, "error"),))


FINDERS = (reported("gpu_newer_than_wheel_archs", _find_arch, though_it_works=True),)
