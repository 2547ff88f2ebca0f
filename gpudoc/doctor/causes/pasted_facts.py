"""Facts in what people paste that decide by comparison: device files, versions, table columns, prompts and paths."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import by_text, quote, words
from gpudoc.doctor.model import Finding, Observation, Skip, observe
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


_MIG_COLUMN = Pattern(r"(?m)^\| ?\| ?\| Enabled\*? \|$")
_MIG_LISTED = words(
    r"MIG devices:", r"MIG \dg\.\d+gb", "MIG-GPU-", r"MIG-[0-9a-f]{8}-", r"\bGI\b.{0,20}\bCI\b.{0,200}SM"
)
_TABLE_ENDS = words(r"\| Processes: ", "No MIG devices found", r"GPU GI CI PID")


def _find_in_table(text: Text) -> Iterator[Finding | Skip]:
    """A column of nvidia-smi's table: MIG without its instances."""
    enabled = text.find(_MIG_COLUMN)
    if enabled and text.find(_TABLE_ENDS) and not text.find(words(r"MIG devices:")) and not text.find(_MIG_LISTED):
        yield Finding(
            id="mig_enabled_no_instance",
            confidence=0.8,
            evidence=(quote(enabled, "MIG M."), observe("MIG devices", "no such table", "nvidia-smi")),
        )


_NO_GPU_HERE = Listed("pasted-no-gpu-here")
# where hosted notebooks keep the program: a traceback names the place that its author does not
_HOSTED = Pattern(
    r"(?:File \"|\s|^|[ %!:(])(/content/|/kaggle/(?:working|input|src)|/home/studio-lab-user/|/workspaces/\w)"
)
_VIRTUAL_SCREEN = Pattern(
    r"(?i)(?:VGA compatible|3D|Display) controller: ?(?!NVIDIA|Advanced Micro|AMD)[^\n]{0,20}"
    r"(Cirrus|VMware|Red Hat|QXL|Bochs|Virtio|Matrox|ASPEED|Intel|Microsoft|InnoTek|VirtualBox|Device 1234)\b"
)
_ANY_CARD = Pattern(r"(?i)(?:controller|accelerators?): ?(?:NVIDIA|Advanced Micro|AMD)|NVIDIA-SMI \d{3}")


def _find_hosted(text: Text) -> Iterator[Finding | Skip]:
    """A hosted session, or a machine whose only screen is one of the hypervisor or the board, and no driver."""
    missing = text.find(_NO_GPU_HERE)
    if missing is None or text.find(_WORKS) or text.find(_ANY_CARD):
        return
    place = text.find(_HOSTED) or text.find(_VIRTUAL_SCREEN)
    if place is not None:
        yield Finding(
            id="no_gpu_on_machine",
            confidence=0.8,
            evidence=(quote(place, "where it runs"), quote(missing, "effect")),
            explains=("driver_missing_or_not_loaded", "container_without_gpu_access"),
        )


# docker's own marks: the name and bars of compose, and a host name that is a container's id
_INSIDE = Pattern(
    r"(?m)^[\w.-]+[-_]\d{1,2} +\| |^(?!\|)[a-z][\w.-]{2,40} +\| +(?:File|Traceback|RuntimeError|return|raise|INFO|"
    r"\w+Error)\b"
    r"|\broot@[0-9a-f]{12}:|\b[\w.-]+ exited with code [1-9]"
)
_NO_DRIVER_INSIDE = Listed("pasted-no-driver-inside")


def _find_inside(text: Text) -> Iterator[Finding | Skip]:
    inside, missing = text.find(_INSIDE), text.find(_NO_DRIVER_INSIDE)
    if inside and missing and not text.find(_WORKS) and not text.find(words(r"Unknown Error", "version mismatch")):
        yield Finding(
            id="container_without_gpu_access",
            confidence=0.7,
            evidence=(quote(inside, "in a container"), quote(missing, "effect")),
            explains=("driver_missing_or_not_loaded", "no_gpu_on_machine"),
        )


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


_VIRTUAL_CARD = Pattern(
    r"\b(?:GRID[ _-]?)?(?:M(?:6|10|60)|P(?:4|6|40|100[A-Z]?)|V100[A-Z]{0,3}|T4|RTX ?[A-Z]?\d{4}[A-Z]?|A(?:2|10[A-Z]?|"
    r"16|30[A-Z]?|"
    r"40|100[A-Z]{0,2}|800[A-Z]{0,2})|L(?:2|4|20|40[A-Z]?)|H(?:20|100|200|800)[A-Z]{0,2})(?:-\d)?-\d{1,2}[QCBA]\b"
)
_VIRTUAL = words(r"\bv-?gpus?\b", r"\bGRID (?:driver|vgpu|guest|[A-Z]\d)", "gridd", r"virtual gpus?\b", "NVIDIA vGPU")
_SHARED_BY_SOFTWARE = words(r"\bHAMi\b", "volcano", "4paradigm", "gpumem", r"vgpu[- ](?:scheduler|device[- ]plugin)")
_SLOWS = words(
    r"\bslow\w*|\bthrottl\w*|\bdegrad\w*|\bstuck\b|\bcrawl\w*",
    r"\b\d+ ?x (?:longer|slower)|times (?:slower|longer)",
    r"(?:from|instead of) (?:\w+ ){0,3}(?:seconds?|ms|milliseconds?) to (?:\w+ ){0,4}(?:minutes?|seconds|hours)",
    r"takes? (?:\w+ ){0,3}(?:longer|minutes)",
)
_MINUTES = Listed("pasted-minutes")
_MACHINE_OF_OTHERS = words(r"\bVMs?\b|virtual machines?", r"\bazure\b|\bAKS\b|vmware|proxmox|esxi|citrix|\bguest\b")


def _find_throttled_slice(text: Text) -> Iterator[Finding | Skip]:
    """A virtual GPU that works for some minutes and is then held back: so does the driver without a licence."""
    slow, busy = text.find(_SLOWS), text.find(_BUSY)
    if (slow is None and busy is None) or text.find(_SHARED_BY_SOFTWARE):
        return
    card, later = text.find(_VIRTUAL_CARD) or text.find(_VIRTUAL), text.find(_MINUTES)
    if card and slow:
        sure = 0.8 if later else 0.6
        yield Finding(id="vgpu_unlicensed", confidence=sure, evidence=(quote(card, "GPU"), quote(slow, "effect")))
    elif card and busy:
        yield Finding(
            id="vgpu_unlicensed", confidence=0.8, evidence=(quote(card, "GPU"),), explains=("compute_mode_exclusive",)
        )
    elif slow and later and text.find(_MACHINE_OF_OTHERS) and text.find(words(r"times slower|\d+ ?x slower")):
        seen = (quote(slow, "effect"), quote(later, "when"))
        yield Finding(id="vgpu_unlicensed", confidence=0.56, evidence=seen)


FINDERS = (
    by_text("driver_library_mismatch", _find_two_versions),
    by_text("mig_enabled_no_instance", _find_in_table),
    by_text("no_gpu_on_machine", _find_hosted),
    by_text("container_without_gpu_access", _find_inside),
    by_text("wsl_windows_or_kernel_too_old", _find_old_windows),
    by_text("vgpu_unlicensed", _find_throttled_slice),
)
