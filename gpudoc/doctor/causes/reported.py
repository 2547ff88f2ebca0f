"""Whether the torch build, the driver, the GPU and the packages that a text reports fit together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoc.doctor.causes.said_facts import NOT_COMPATIBLE, built_for, origin_of, reported, seen_fact
from gpudoc.doctor.causes.sign import quote, words
from gpudoc.doctor.model import Evidence, Finding, Severity, Skip, observe
from gpudoc.doctor.setting import known
from gpudoc.doctor.vocabulary import Listed
from gpudoc.facts.model import Package
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text
from gpudoc.knowledge.compatibility import has_index, vision_for
from gpudoc.knowledge.drivers import driver_floor

_WANTS_GPU = Listed("torch-build-wants-gpu")


def _find_cpu_only(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
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


_INDEX = Pattern(r"download\.pytorch\.org/whl/(?:nightly/)?cu(\d{2,3})\b")
_PLAIN_INSTALL = Pattern(r"(?m)^[^\n]{0,60}\bpip3? install (?![^\n]*(?:whl/|index-url|\+cu|-f http))[^\n]*\btorch\b")


def _find_fallback(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """An index that PyTorch never had, or PyPI on Windows: pip falls back to the build without CUDA, without a word."""
    if known(evidence.machine.torch.accelerator) == "cuda":
        return
    index = text.find(_INDEX)
    if index and not has_index(index[1]):
        yield Finding(
            id="cpu_only_torch",
            confidence=0.85,
            title=f"PyTorch has no index cu{index[1]}: pip took PyPI's torch instead, on Windows the one without CUDA",
            evidence=(quote(index, "index"),),
        )
        return
    plain = text.find(_PLAIN_INSTALL)
    if plain and text.find(_WINDOWS) and text.find(_WANTS_GPU):
        yield Finding(id="cpu_only_torch", confidence=0.72, evidence=(quote(plain, "installed"),))


_WINDOWS = words(r"\bwindows\b", r"win_amd64", r"\b[A-Z]:\\", r"\.dll\b", r"WinError")
_TAGGED = Pattern(r"(?i)\btorch[\w =:.'\"-]{0,24}?\d\.\d+\.\d+\+cu(\d{2})(\d)\b")


def _find_changing_builds(text: Text, _: Evidence) -> Iterator[Finding | Skip]:
    """One environment in which an installation replaced torch's CUDA generation by another."""
    mentions = list(text.find_all(_TAGGED))
    installs = text.find(words(r"\b(?:pip3?|uv|poetry|conda) (?:install|add|sync)\b"))
    if installs and len({m[1] for m in mentions}) > 1:
        seen = (quote(mentions[0], "torch"), quote(mentions[-1], "torch later"))
        yield Finding(id="mixed_cuda_packages", confidence=0.74, evidence=seen)


def _find_old_driver(_: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    machine = evidence.machine
    driver, cuda = known(machine.driver.module_version), built_for(machine)
    if driver is None or cuda is None:
        return
    floor = driver_floor(cuda)
    if floor is not None and _number(driver) < _number(floor):
        why = f"torch is built for CUDA {cuda[0]}.{cuda[1]}, which needs driver {floor} or newer; {driver} is installed"
        seen = (
            seen_fact(evidence, "driver.module_version", driver),
            seen_fact(evidence, "torch.cuda_version", f"{cuda[0]}.{cuda[1]}"),
        )
        yield Finding(id="driver_too_old", confidence=0.92, title=why, evidence=seen)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


_NVIDIA = Pattern(r"(?i)nvidia|geforce|tesla|quadro|rtx|gtx")
_AMD_NAME = Pattern(r"(?i)\bamd\b|radeon|\bmi\d{2,3}\b|gfx\d")
_AMD = words(r"\brocm\b(?! used)", r"rocm-smi|rocminfo", r"\bradeon\b", r"\bgfx\d{3,4}\b", "AMD GPU", "/dev/kfd")
_INTEL = words(r"Intel\(?R?\)? ?Arc", r"\bxpu\b", "level[- ]zero", r"Intel .{0,20}(?:GPU|Graphics)")
_NO_ROCM = words("ROCM used to build PyTorch: N/A", "ROCM used to build PyTorch: None")


def _find_other_vendor(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
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


def _find_jetson(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    machine = evidence.machine
    trouble = (
        machine.torch.is_available is False
        or text.find(_WANTS_GPU)
        or text.find(NOT_COMPATIBLE)
        or text.find(words("cannot open shared object", "not available", "CPU", "error"))
    )
    if trouble and known(machine.host.jetson) is True:
        seen = seen_fact(evidence, "host.jetson", "a Jetson")
        yield Finding(id="jetson_generic_wheel", confidence=0.9, evidence=(seen,))


def _find_vision(_: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A torchvision of another release than the torch beside it, or built for another device."""
    packages = {p.name: p for p in known(evidence.machine.python.packages) or ()}
    torch, vision = packages.get("torch") or packages.get("pytorch"), packages.get("torchvision")
    if torch is None or vision is None:
        return
    wanted = vision_for(torch.version)
    other = wanted is not None and not vision.version.startswith(wanted)
    own, beside = (re.search(r"\+(cpu|cu\d+)", p.version) for p in (torch, vision))
    mixed = own is not None and beside is not None and own[1] != beside[1]
    if other or mixed:
        belongs = f", which belongs to {wanted}.x" if other else ""
        what = f"{vision.version} beside torch {torch.version}{belongs}"
        seen = (seen_fact(evidence, "packages.torchvision", what),)
        sure = 0.85 if mixed else 0.62
        yield Finding(id="torchvision_torch_mismatch", confidence=sure, severity="warning", evidence=seen)


def _find_mixed(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    machine = evidence.machine
    packages = known(machine.python.packages) or ()
    generations: dict[str, list[str]] = {}
    for package in packages:
        for generation in _generation(package):
            generations.setdefault(generation, []).append(f"{package.name} {package.version}")
    twice = _two_builds(packages)
    if len(generations) < 2 and not twice:
        return
    fails = text.find(words("undefined symbol", "cannot open shared", "mismatch", "CUBLAS", "CUDNN_STATUS"))
    works = machine.torch.is_available is True and not fails
    value = twice or "; ".join(f"CUDA {g}: {', '.join(names[:3])}" for g, names in sorted(generations.items()))
    yield Finding(
        id="mixed_cuda_packages",
        confidence=0.6 if works else 0.86,
        severity="warning" if works else "broken",
        evidence=(observe("packages", value, origin_of(evidence, f"packages.{packages[0].name}")),),
    )


def _generation(package: Package) -> tuple[str, ...]:
    tag = re.search(r"-cu(\d{2})$", package.name) if package.name.startswith("nvidia-") else None
    if tag:
        return (tag[1],)
    if (
        package.name in ("cudatoolkit", "pytorch-cuda", "cuda-runtime", "cuda-cudart", "cuda-libraries")
        and package.channel == "conda"
    ):
        return (package.version.split(".")[0],)
    built = re.search(r"\+cu(\d{2})\d", package.version)
    if built and package.name in ("torch", "torchvision", "torchaudio"):
        return (built[1],)
    return ()


def _two_builds(packages: tuple[Package, ...]) -> str:
    for name in ("torch", "pytorch"):
        versions = {p.version for p in packages if p.name in (name, "torch")}
        channels = {p.channel for p in packages if p.name in (name, "torch")}
        if len(versions) > 1 and len(channels) > 1:
            return f"torch from pip and conda: {', '.join(sorted(versions))}"
    return ""


FINDERS = (
    reported("cpu_only_torch", _find_cpu_only),
    reported("cpu_only_torch", _find_fallback),
    reported("mixed_cuda_packages", _find_changing_builds),
    reported("driver_too_old", _find_old_driver),
    reported("wrong_accelerator_build", _find_other_vendor),
    reported("jetson_generic_wheel", _find_jetson),
    reported("torchvision_torch_mismatch", _find_vision, though_it_works=True),
    reported("mixed_cuda_packages", _find_mixed, though_it_works=True),
)
