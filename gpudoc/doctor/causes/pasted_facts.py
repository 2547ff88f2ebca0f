"""Versions in what people paste, compared: those of the driver's two halves, and of the Windows around WSL."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import by_text, quote, words
from gpudoc.doctor.model import Finding, Observation, Skip
from gpudoc.doctor.vocabulary import Listed
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

_WORKS = words(r"is_available\(\)\W{0,8}True", r"Is CUDA available: (?:True|Yes)")

_BUSY = words(r"devices?(?:\(s\))? (?:is|are|is/are) busy or unavailable")


_KERNEL_MODULE = Pattern(
    r"NVRM version:[^\n]{0,60}?Kernel Module\s+(?:for \S+\s+)?(\d{3}\.\d+(?:\.\d+)?)"
    r"|kernel reported version is: (\d{3}\.\d+(?:\.\d+)?)"
)
_LIBRARY = Pattern(
    r"libcuda reported version is: (\d{3}\.\d+(?:\.\d+)?)"
    r"|\blib(?:nvidia-compute|cuda1|nvidia-gl|nvidia-ml1)(?:-\d{3}\w*)?(?::amd64)?\s+(?:\d:)?(\d{3}\.\d+(?:\.\d+)?)"
    r"|(?<!compat/)\blib(?:cuda|nvidia-ml)\.so\.(\d{3}\.\d+(?:\.\d+)?)"
)
_COMPAT = words(r"/compat\b", "forward compat", r"\bcuda-compat\b")


def _find_two_versions(text: Text) -> Iterator[Finding | Skip]:
    """The kernel module's version and the library's, as files and packages state them: unequal."""
    kernel, library = text.find(_KERNEL_MODULE), text.find(_LIBRARY)
    if kernel is None or library is None or text.find(_COMPAT) or text.find(_WORKS):
        return
    one = next(group for group in kernel.match.groups() if group)
    other = next(group for group in library.match.groups() if group)
    if _numbers(one) != _numbers(other):
        seen = (quote(kernel, "kernel module"), quote(library, "library"))
        yield Finding(id="driver_library_mismatch", confidence=0.86, evidence=seen)


def _numbers(version: str) -> tuple[int, ...]:
    # one program prints 470.57.02 as 470.57.2
    return tuple(int(part) for part in version.split("."))


_BUILD = Pattern(
    r"(?i)(?:\b10\.0\.|\bbuild(?: number| version)?\W{0,3}|\bwindows\W{0,3}(?:1[01]\W{0,3})?|\(?os build )(\d{5})\b"
)
_RELEASE = Pattern(
    r"(?i)\bwindows\b[^\n]{0,40}\b(1[5-9]0[39]|2004|20H2|21H1)\b|\b(?:version|release)\W{0,3}(20H2|21H1)\b"
)
# CUDA in WSL wants 5.10.43.3 or newer: https://docs.nvidia.com/cuda/wsl-user-guide/
_KERNEL = Pattern(
    r"(?i)\b(?:4\.\d{1,2}|5\.4|5\.10\.(?=(?:[0-3]?\d|4[0-2])\b))\.?\d+(?:\.\d+)?[\w.-]*microsoft"
    r"|\bkernel(?: version)?\W{1,8}(?:(?:4\.\d{1,2}|5\.4)\.\d+|5\.10\.(?:[0-3]?\d|4[0-2]))\b"
)
_WSL = words(r"\bWSL", "microsoft-standard", "/dev/dxg", "/usr/lib/wsl")
_NOT_WSL = words(
    "non-WSL environment",
    r"\b(?:am|is|are|was|'m|'s) not (?:on|in|under|inside|using) (?:the )?WSL|\bnot running (?:on|in|under) WSL|"
    r"\b(?:not|n't) (?:use|using) WSL",
)
_DRIVER_INSIDE = words(r"apt(?:-get)? install .{0,30}nvidia-(?:driver|utils|compute)", r"nvidia-(?:driver|utils)-\d{3}")
_GPU_DEAD = Listed("pasted-gpu-dead")
# a kernel alone is weak evidence, so CUDA itself must be what fails
_CUDA_DEAD = Listed("pasted-cuda-dead")
# the first Windows 10 whose WSL hands on the GPU is 21H2, 19044; those from 20150 to 21999 were previews of Windows 11
_FIRST_BUILD, _PREVIEWS = 19044, range(20100, 22000)


def _find_old_windows(text: Text) -> Iterator[Finding | Skip]:
    """WSL on a Windows, or on a kernel, from before GPUs were handed on, or from the previews in which that broke."""
    wsl = text.find(_WSL)
    if wsl is None or text.find(_NOT_WSL) or text.find(_DRIVER_INSIDE):
        return
    busy = text.find(_BUSY)
    dead = busy or (None if text.find(_WORKS) else text.find(_GPU_DEAD))
    if dead is None:
        return
    for said in text.find_all(_BUILD, most=8):
        number = int(said[1])
        if 10240 <= number < _FIRST_BUILD or number in _PREVIEWS:
            seen = (quote(said, "Windows"), quote(dead, "effect"))
            sure = 0.9 if busy else 0.8 if number < _FIRST_BUILD else 0.74
            yield _windows(sure, seen)
            return
    old = text.find(_RELEASE) or (text.find(_KERNEL) if text.find(_CUDA_DEAD) else None)
    if old is not None or busy is not None:
        place = old or wsl
        yield _windows(0.88 if busy else 0.74, (quote(place, "Windows or kernel"), quote(dead, "effect")))


def _windows(sure: float, seen: tuple[Observation, ...]) -> Finding:
    return Finding(
        id="wsl_windows_or_kernel_too_old",
        confidence=sure,
        evidence=tuple(dict.fromkeys(seen)),
        explains=("compute_mode_exclusive", "driver_missing_or_not_loaded", "no_gpu_on_machine"),
    )


FINDERS = (
    by_text("driver_library_mismatch", _find_two_versions),
    by_text("wsl_windows_or_kernel_too_old", _find_old_windows),
)
