"""Find statements of a text that contradict each other: a mask and the devices, a card and a precision, releases."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import (
    UNAVAILABLE,
    built_for,
    by_text,
    gpu_capability,
    other_source,
    quote,
    reported,
    seen_fact,
    text_finder,
    words,
)
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.facts.model import Machine, known
from gpudoc.facts.readers.model import CleanText
from gpudoc.knowledge.drivers import driver_runs_cuda
from gpudoc.patterns import Pattern

_FAILS = words(r"\berrors?\b|\w+Error\b", r"\bfail\w*", r"\bcrash\w*", r"\bnans?\b", r"\bslow\w*")

# CUDA's messages if no device is left
_NONE_LEFT = words(
    "No CUDA GPUs are available",
    "no CUDA-capable device is detected",
    "No HIP GPUs are available",
    "CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice",
    # TensorFlow prints this only after cuInit found no device
    "kernel version seems to match DSO",
)
_SEES_NONE = words(UNAVAILABLE)
_OTHER_REASON = words(
    r"couldn.t communicate|Driver Not Loaded|Found no NVIDIA driver",
    r"\+cpu\b|not compiled with CUDA",
    r"\bError 80\d\b",
)
# CUDA stops at the first entry that does not name a device
_MASK = Pattern(
    r"\b(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES['\"]?\s*(?:\]\s*)?(?:[=:,]|\bto\b|\bis\b)\s*(?:['\"]\s*)?"
    r"(-1\b|\d+(?=\s|['\",;)\]}`]|\.(?!\d)|$)|['\"]{2})"
)
# programs turn this option into a mask; one that passed it as a number would get "invalid device ordinal"
_OPTION = Pattern(
    r"(?i)(?:--(?:gpus?|gpu[_-]?ids?|device[_-]?ids?|cuda[_-]?device)[= ]+|"
    r"\b(?:CUDA_ID|GPU_?IDS?|GPU_?NUM|CUDA_?DEVICES?|DEVICE_?IDS?)=)['\"\[]?([1-9]\d?)\b"
)


def _find_masked(text: CleanText, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A mask whose first entry is beyond the existing devices, so that no device is left."""
    left = text.find(_NONE_LEFT)
    none = left or text.find(_SEES_NONE)
    if none is None or text.find(_OTHER_REASON):
        return
    count = max(len(known(evidence.machine.gpus) or ()), 1)
    beyond = (one for one in text.find_all(_MASK, most=20) if not one[1].isdecimal() or int(one[1]) >= count)
    mask, option = next(beyond, None), text.find(_OPTION)
    if mask is None and left is not None and option is not None and int(option[1]) >= count:
        mask = option
    if mask is not None:
        seen = (quote(mask, "mask"), quote(none, "effect"))
        sure = 0.56 if mask is option else 0.78 if left else 0.68
        yield Finding(id="visible_devices_hides_gpu", confidence=sure, evidence=tuple(dict.fromkeys(seen)))


_SMI_CUDA = Pattern(r"(?i)nvidia-smi\b[^\n]{0,80}?\bcuda(?: version)?\W{1,4}(\d{1,2})\.(\d)\b")
_BUILD_CUDA = Pattern(
    r"(?i)(?:\+|\btorch\b[^\n]{0,30}|whl/|pytorch-cuda[=\s]+|cudatoolkit[=\s]+)(?:cu(\d{2})(\d)|(1\d)\.(\d))\b"
)
_NO_GPU = words(
    UNAVAILABLE, "Found no NVIDIA driver", r"No CUDA (?:GPUs|runtime)", "no CUDA-capable", r"driver\W.{0,40}too old"
)


def _find_told_cuda(text: CleanText, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The driver's CUDA, as quoted from nvidia-smi, does not run the CUDA that torch is built with."""
    machine = evidence.machine
    offered = text.find(_SMI_CUDA)
    if offered is None or known(machine.driver.module_version) is not None:
        return
    built = built_for(machine) or _named_build(text)
    if built is not None and text.find(_NO_GPU) and not driver_runs_cuda((int(offered[1]), int(offered[2])), built):
        seen = (quote(offered, "driver"), observe("torch", f"built with CUDA {built[0]}.{built[1]}", "the text"))
        yield Finding(id="driver_too_old", confidence=0.82, evidence=seen)


def _named_build(text: CleanText) -> tuple[int, int] | None:
    named = text.find(_BUILD_CUDA)
    return None if named is None else (int(named[1] or named[3]), int(named[2] or named[4]))


def _find_other_source(text: CleanText) -> Iterator[Finding | Skip]:
    """The source file without a kernel for the card is not one of torch's."""
    named = other_source(text)
    if named is not None and text.find(words("is not compatible with the current PyTorch")) is None:
        yield Finding(id="extension_missing_arch", confidence=0.85, evidence=(quote(named, "source file"),))


_MACOS = Pattern(r"(?i)\bmac ?os\W{0,3}(\d\d)(?:\.(\d+))?")
_MPS_FALSE = Pattern(
    r"(?i)\bmps\b[^\n]{0,40}?(?:is_)?available\W{0,8}(?:(?:is|returns?|gives?|prints?|says?)\s)?\W{0,4}(?:False|no\b)"
)
# the first macOS of each: torch 1.12 (its release notes), 2.5 (pytorch issue 139425), 2.10 (pytorch issue 164943)
_FIRST_MACOS = (((1, 0), (12, 3)), ((2, 5), (13, 0)), ((2, 10), (14, 0)))
_RECENT = (2, 5)


def _find_old_macos(text: CleanText, evidence: Evidence) -> Iterator[Finding | Skip]:
    """MPS that is not available because the macOS is older than this torch needs."""
    system, missing = text.find(_MACOS), text.find(_MPS_FALSE)
    if system is None or missing is None:
        return
    stated = Pattern(r"(\d+)\.(\d+)").match(known(evidence.machine.torch.version) or "")
    # a torch of unknown release is most likely a recent one
    version = (int(stated[1]), int(stated[2])) if stated else _RECENT
    wanted = [macos for torch, macos in _FIRST_MACOS if version >= torch][-1]
    if (int(system[1]), int(system[2] or 0)) < wanted:
        needs = f"MPS of torch {version[0]}.{version[1]} needs macOS {wanted[0]}.{wanted[1]}, this is {system[0]}"
        seen = tuple(dict.fromkeys((quote(system, "system"), quote(missing, "torch"))))
        title, sure = (needs, 0.9) if stated else ("", 0.66)
        yield Finding(id="mps_macos_too_old", confidence=sure, title=title, evidence=seen)


_BF16_ON = words(
    r"\bbf16\W{1,5}(?:true|enabled\W{1,4}true)", r"--bf16\b", r"mixed_precision\W{1,5}bf16", r"bf16-(?:mixed|true)\b"
)
# bf16 in the units of the card begins with Ampere, capability 8.0 (CUDA C++ Programming Guide, table of arithmetic)
_FIRST_WITH_BF16 = (8, 0)


def _find_bf16(text: CleanText, evidence: Evidence) -> Iterator[Finding | Skip]:
    """bf16 is switched on for a card older than Ampere, and something fails."""
    found = text.find(_BF16_ON)
    capabilities = _capabilities(evidence.machine)
    if found is None or not capabilities or max(capabilities.values()) >= _FIRST_WITH_BF16 or not text.find(_FAILS):
        return
    name, capability = next(iter(capabilities.items()))
    card = seen_fact(evidence, "gpus.0.name", f"{name}, capability {capability[0]}.{capability[1]}")
    seen = (quote(found, "precision"), card)
    yield Finding(id="bf16_unsupported_gpu", confidence=0.42, severity="warning", evidence=seen)


def _capabilities(machine: Machine) -> dict[str, tuple[int, int]]:
    """The capability of each card that the text names, by its name."""
    cards = [(known(gpu.name) or "GPU", gpu_capability(gpu)) for gpu in known(machine.gpus) or ()]
    return {name: capability for name, capability in cards if capability is not None}


FINDERS = (
    reported("visible_devices_hides_gpu", _find_masked, though_it_works=True),
    reported("driver_too_old", _find_told_cuda),
    by_text("extension_missing_arch", _find_other_source),
    text_finder("mps_macos_too_old", _find_old_macos),
    text_finder("bf16_unsupported_gpu", _find_bf16),
)
