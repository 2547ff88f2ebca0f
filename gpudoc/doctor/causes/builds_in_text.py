"""Whether the torch build, the driver, the GPU and the packages that a text reports fit together."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import Listed, built_for, quote, reported, seen_fact, words
from gpudoc.doctor.model import Evidence, Finding, Severity, Skip
from gpudoc.facts.model import known
from gpudoc.facts.readers.model import CleanText
from gpudoc.knowledge.compatibility import has_index
from gpudoc.knowledge.drivers import driver_floor
from gpudoc.patterns import Pattern

_WANTS_GPU = Listed("torch-build-wants-gpu")


def _find_cpu_only(text: CleanText, evidence: Evidence) -> Iterator[Finding | Skip]:
    machine = evidence.machine
    if known(machine.host.system) == "Darwin":
        return
    version = known(machine.torch.version)
    if known(machine.torch.accelerator) not in ("cpu", "none") or known(machine.torch.hip_version) is not None:
        return
    seen = [seen_fact(evidence, "torch.version", version)] if version is not None else []
    seen.append(seen_fact(evidence, "torch.accelerator", "built without CUDA"))
    has_gpu = bool(known(machine.gpus)) or known(machine.driver.module_version) is not None
    missed = has_gpu or text.find(_WANTS_GPU) is not None
    sure = 0.94 if has_gpu else 0.8 if missed else 0.5
    severity: Severity = "broken" if missed else "info"
    yield Finding(id="cpu_only_torch", confidence=sure, severity=severity, evidence=tuple(seen))


# the address of a wheel is not an index
_INDEX = Pattern(r"download\.pytorch\.org/whl/(?:nightly/)?cu(\d{2,3})\b(?!/\S*\.whl)")
_PLAIN_INSTALL = Pattern(r"(?m)^[^\n]{0,60}\bpip3? install (?![^\n]*(?:whl/|index-url|\+cu|-f http))[^\n]*\btorch\b")


def _find_fallback(text: CleanText, evidence: Evidence) -> Iterator[Finding | Skip]:
    """An index that PyTorch never had, or PyPI on Windows: pip silently falls back to the build without CUDA."""
    if known(evidence.machine.torch.accelerator) == "cuda":
        return
    index = text.find(_INDEX)
    if index and not has_index(index[1]):
        title = f"PyTorch has no index cu{index[1]}, so pip took torch from PyPI instead, which has no CUDA on Windows"
        yield Finding(id="cpu_only_torch", confidence=0.85, title=title, evidence=(quote(index, "index"),))
        return
    plain = text.find(_PLAIN_INSTALL)
    if plain and text.find(_WINDOWS) and text.find(_WANTS_GPU):
        yield Finding(id="cpu_only_torch", confidence=0.72, evidence=(quote(plain, "installed"),))


_WINDOWS = words(r"\bwindows\b", r"win_amd64", r"\b[A-Z]:\\", r"\.dll\b", r"WinError")
_TAGGED = Pattern(r"(?i)\btorch[\w =:.'\"-]{0,24}?\d\.\d+\.\d+\+cu(\d{2})(\d)\b")


def _find_changing_builds(text: CleanText, _: Evidence) -> Iterator[Finding | Skip]:
    """An environment in which an installation replaced torch's CUDA generation with another."""
    mentions = list(text.find_all(_TAGGED))
    installs = text.find(words(r"\b(?:pip3?|uv|poetry|conda) (?:install|add|sync)\b"))
    if installs and len({m[1] for m in mentions}) > 1:
        seen = (quote(mentions[0], "torch"), quote(mentions[-1], "torch later"))
        yield Finding(id="mixed_cuda_packages", confidence=0.74, evidence=seen)


def _find_old_driver(_: CleanText, evidence: Evidence) -> Iterator[Finding | Skip]:
    machine = evidence.machine
    driver, cuda = known(machine.driver.module_version), built_for(machine)
    if driver is None or cuda is None:
        return
    floor = driver_floor(cuda, windows=machine.has_windows_driver)
    if floor is not None and _number(driver) < _number(floor):
        why = f"torch is built for CUDA {cuda[0]}.{cuda[1]}, which needs driver {floor} or newer; {driver} is installed"
        seen = (
            seen_fact(evidence, "driver.module_version", driver),
            seen_fact(evidence, "torch.cuda_version", f"{cuda[0]}.{cuda[1]}"),
        )
        yield Finding(id="driver_too_old", confidence=0.92, title=why, evidence=seen)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in Pattern(r"\d+").findall(version)[:3])


_NVIDIA = Pattern(r"(?i)nvidia|geforce|tesla|quadro|rtx|gtx")
_AMD_NAME = Pattern(r"(?i)\bamd\b|radeon|\bmi\d{2,3}\b|gfx\d")
_AMD = words(r"\brocm\b(?! used)", r"rocm-smi|rocminfo", r"\bradeon\b", r"\bgfx\d{3,4}\b", "AMD GPU", "/dev/kfd")
_INTEL = words(r"Intel\(?R?\)? ?Arc", r"\bxpu\b", "level[- ]zero", r"Intel .{0,20}(?:GPU|Graphics)")
_NO_ROCM = words("ROCM used to build PyTorch: N/A", "ROCM used to build PyTorch: None")


def _find_other_vendor(text: CleanText, evidence: Evidence) -> Iterator[Finding | Skip]:
    machine = evidence.machine
    built = known(machine.torch.accelerator)
    names = " ".join(known(g.name) or "" for g in known(machine.gpus) or ())
    nvidia = known(machine.driver.module_version) is not None or _NVIDIA.search(names)
    amd = _AMD_NAME.search(names) or text.find(_AMD)
    intel = text.find(_INTEL) and not text.find(_NO_ROCM)
    sure = 0.0
    if built == "rocm":
        sure = 0.93 if nvidia else 0.0
    elif not nvidia and built is not None:
        sure = 0.85 if built == "cuda" and (amd or intel) else 0.6 if built in ("cpu", "none") and amd else 0.0
    if sure:
        seen = seen_fact(evidence, "torch.accelerator", "cpu" if built == "none" else built)
        yield Finding(id="wrong_accelerator_build", confidence=sure, evidence=(seen,))


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


def _find_two_versions(text: CleanText, _: Evidence) -> Iterator[Finding | Skip]:
    """A kernel module and a driver library whose versions differ, as files and packages state them."""
    kernel, library = text.find(_KERNEL_MODULE), text.find(_LIBRARY)
    if kernel is None or library is None or text.find(_COMPAT):
        return
    one = next(group for group in kernel.match.groups() if group)
    other = next(group for group in library.match.groups() if group)
    if _number(one) != _number(other):
        seen = (quote(kernel, "kernel module"), quote(library, "library"))
        yield Finding(id="driver_library_mismatch", confidence=0.86, evidence=seen)


FINDERS = (
    reported("cpu_only_torch", _find_cpu_only),
    reported("cpu_only_torch", _find_fallback),
    reported("mixed_cuda_packages", _find_changing_builds),
    reported("driver_too_old", _find_old_driver),
    reported("wrong_accelerator_build", _find_other_vendor),
    reported("driver_library_mismatch", _find_two_versions),
)
