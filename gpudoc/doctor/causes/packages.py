"""Faults of the packages around torch: pinned versions, two CUDA generations, two copies, foreign libraries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

from gpudoc.doctor.causes.live import observe
from gpudoc.doctor.model import Evidence, Finder, Finding, Severity, Skip
from gpudoc.facts.model import Absent, Machine, Package, known_or
from gpudoc.facts.readers.gather import normal_name
from gpudoc.knowledge.compatibility import is_triton_release, triton_for, vision_for
from gpudoc.knowledge.drivers import parse_version
from gpudoc.patterns import Pattern

_CUDA_PACKAGE = Pattern(r"(?P<library>nvidia-[a-z-]+?|cupy-cuda|nvidia-[a-z]+)-?(?:cu|cuda)(?P<major>1[0-9])x?")
# from CUDA 13 on, the version of these packages gives the generation, not the name
_WITHOUT_GENERATION = tuple(
    f"nvidia-{name}" for name in ("cublas", "cuda-runtime", "cufft", "cusparse", "cusolver", "curand")
)
_PIN = Pattern(r"^(?P<name>[A-Za-z0-9._-]+)\s*\(?==\s*(?P<version>[^\s;,)]+)\)?\s*(?:;\s*(?P<marker>.+))?$")
_LIBRARY = Pattern(
    r"lib(?P<name>cudart|cublasLt|cublas|cudnn|nccl|cusparseLt|cusparse|cufft|curand|cusolver|nvJitLink)[_.\w-]*\.so"
)
_TAG = Pattern(r"cpu|cu\d+")
_WATCHED = ("torch", "torchvision", "torchaudio", "triton", "numpy")


def _installed(machine: Machine) -> dict[str, list[Package]]:
    found: dict[str, list[Package]] = defaultdict(list)
    for package in known_or(machine.python.packages, ()):
        found[normal_name(package.name)].append(package)
    return found


def _first(machine: Machine, name: str) -> Package | None:
    # Python imports from the first folder on the path
    return next(iter(_installed(machine).get(name, ())), None)


def _pins(package: Package) -> Iterator[tuple[str, str]]:
    """(name, version) of each exact requirement that applies on Linux without extras."""
    for text in package.requires:
        match = _PIN.match(text.strip())
        if match and _applies(match["marker"] or ""):
            yield normal_name(match["name"]), match["version"]


def _applies(marker: str) -> bool:
    clauses = [clause.strip() for clause in marker.split(" and ")] if marker else []
    known = r"""(platform_system|sys_platform)\s*==\s*['"](Linux|linux)['"]|platform_machine\s*==\s*['"]x86_64['"]"""
    return all(Pattern(known).fullmatch(clause.strip("() ")) for clause in clauses)


def _same(version: str, wanted: str) -> bool:
    """Whether a version meets an exact pin; the local part counts only if the pin has one."""
    if wanted.endswith(".*"):
        return version.split("+")[0].startswith(wanted[:-1])
    return version == wanted if "+" in wanted else version.split("+")[0] == wanted


def find_torchvision(evidence: Evidence) -> Iterator[Finding | Skip]:
    """torchvision or torchaudio made for another torch, or for the CPU although torch is for CUDA."""
    machine = evidence.machine
    torch = _first(machine, "torch")
    for name in ("torchvision", "torchaudio"):
        package = _first(machine, name)
        if torch is None or package is None:
            continue
        wanted = next((version for pin, version in _pins(package) if pin == "torch"), "")
        other = bool(wanted) and not _same(torch.version, wanted)
        # a list in a text gives the installed packages, not their requirements
        belongs = vision_for(torch.version) if name == "torchvision" and not wanted else None
        foreign = belongs is not None and not package.version.startswith(f"{belongs}.")
        local, own = package.version.partition("+")[2], torch.version.partition("+")[2]
        mixed = local != own and all(_TAG.fullmatch(tag) for tag in (local, own))
        if other or mixed or foreign:
            why = f"{package.version}, made for torch {wanted}" if other else package.version
            why += f", and {belongs} belongs to it" if foreign else ""
            seen = (observe(name, why, "site-packages"), observe("torch", torch.version, "site-packages"))
            # two builds of one version may still work together
            severity: Severity = "broken" if other or (mixed and "cpu" in (local, own)) else "warning"
            sure = 0.93 if other or mixed else 0.62
            yield Finding(id="torchvision_torch_mismatch", severity=severity, confidence=sure, evidence=seen)


def find_pins(evidence: Evidence, cause: str) -> Iterator[Finding | Skip]:
    """Libraries that torch pins exactly but that are missing or have another version."""
    machine = evidence.machine
    torch = _first(machine, "torch")
    if torch is None or torch.channel != "pip":
        return
    for name, version in _pins(torch):
        package = _first(machine, name)
        if name == "triton" and cause == "triton_torch_mismatch" and package and not _same(package.version, version):
            yield _pinned(cause, torch, name, version, package.version, 0.9)
        if not name.startswith("nvidia-"):
            continue
        if package is None and cause == "bundled_cuda_library_missing" and _is_torchs_own_wheel(torch):
            yield _pinned(cause, torch, name, version, "not installed", 0.9)
        elif package and cause == "cuda_library_version_differs" and not _same(package.version, version):
            yield _pinned(cause, torch, name, version, package.version, 0.8)


def _is_torchs_own_wheel(torch: Package) -> bool:
    return "+cu" in torch.version or "+" not in torch.version


def _pinned(cause: str, torch: Package, name: str, wanted: str, found: str, confidence: float) -> Finding:
    seen = (
        observe(name, found, "site-packages"),
        observe("torch", f"{torch.version} needs {name}=={wanted}", "torch's metadata"),
    )
    return Finding(id=cause, severity="warning", confidence=confidence, evidence=seen)


def find_mixed_generations(evidence: Evidence) -> Iterator[Finding | Skip]:
    """The same CUDA library installed, or listed in a text, for two CUDA generations; torch from pip and from conda."""
    machine = evidence.machine
    majors: dict[str, set[str]] = defaultdict(set)
    for name, packages in _installed(machine).items():
        match = _CUDA_PACKAGE.fullmatch(name)
        if match:
            majors[match["library"].rstrip("-")].add(match["major"])
        elif name in _WITHOUT_GENERATION:
            majors[name].update(package.version.split(".")[0] for package in packages)
    mixed = {library: [f"cu{m}" for m in sorted(found)] for library, found in majors.items() if len(found) > 1}
    copies = [package for name in ("torch", "pytorch") for package in _installed(machine).get(name, ())]
    if len({package.version for package in copies}) > 1 and len({package.channel for package in copies}) > 1:
        mixed["torch"] = [f"{package.version} from {package.channel}" for package in copies]
    if mixed:
        seen = tuple(observe(library, " and ".join(found), "packages") for library, found in sorted(mixed.items())[:4])
        yield Finding(id="mixed_cuda_packages", severity="warning", confidence=0.85, evidence=seen)


def find_duplicates(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Two copies of torch or of a library it needs; the first on the path shadows the other."""
    for name, packages in _installed(evidence.machine).items():
        pip = {p.location: p.version for p in packages if p.channel == "pip"}
        if (name in _WATCHED or name.startswith("nvidia-")) and len(set(pip.values())) > 1:
            seen = tuple(observe(name, f"{version} in {place}", "sys.path") for place, version in pip.items())
            yield Finding(id="duplicate_packages", severity="warning", confidence=0.85, evidence=seen[:3])


def find_numpy_abi(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A torch built for NumPy 1 together with NumPy 2: torch supports NumPy 2 from 2.3 on (its release notes)."""
    torch, numpy = _first(evidence.machine, "torch"), _first(evidence.machine, "numpy")
    if torch is None or numpy is None:
        return
    if parse_version(numpy.version)[0] >= 2 and parse_version(torch.version)[:2] < (2, 3):
        seen = (observe("numpy", numpy.version, "site-packages"), observe("torch", torch.version, "site-packages"))
        yield Finding(id="numpy2_abi", severity="warning", confidence=0.9, evidence=seen)


def find_foreign_libraries(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A CUDA library loaded from elsewhere although torch's own copy is installed, or two copies loaded at once."""
    machine = evidence.machine
    loaded = machine.torch.loaded_libraries
    if isinstance(loaded, Absent):
        yield Skip(f"torch.loaded_libraries: {loaded.reason}")
        return
    folders: dict[str, set[str]] = defaultdict(set)
    for path in loaded:
        match = _LIBRARY.match(PurePosixPath(path).name)
        if match:
            folders[match["name"]].add(str(PurePosixPath(path).parent))
    own = PurePosixPath(known_or(machine.torch.location, "/nowhere/torch")).parent
    prefix = known_or(machine.python.prefix, "/nowhere")
    for name, places in sorted(folders.items()):
        foreign = [place for place in places if not place.startswith((str(own), prefix))]
        if foreign and _brings(machine, name):
            seen = tuple(observe(f"lib{name}", place, "/proc/self/maps") for place in sorted(places))
            sure = 0.9 if len(places) > 1 else 0.75
            yield Finding(id="library_path_shadows_bundled", severity="warning", confidence=sure, evidence=seen[:3])


def _brings(machine: Machine, library: str) -> bool:
    """Whether the pip packages of torch contain this library."""
    words = {"cudart": "cuda-runtime", "cublasLt": "cublas", "nvJitLink": "nvjitlink"}
    wanted = f"nvidia-{words.get(library, library.lower())}"
    return any(name.startswith(wanted) for name in _installed(machine))


# a nightly build belongs to the Triton of the same day
_NIGHTLY = Pattern(r"\.dev|a0|git|nv")


def _other_triton(torch: str, triton: str) -> str | None:
    """The Triton release that this torch needs if it is not this one; None if all is well."""
    release = ".".join(triton.split(".")[:2])
    wanted = None if _NIGHTLY.search(torch) else triton_for(torch)
    return wanted if is_triton_release(release) and wanted != release else None


def find_triton(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A Triton of the wrong release for a torch that pins none, as conda installs it."""
    torch, triton = _first(evidence.machine, "torch"), _first(evidence.machine, "triton")
    if torch is None or triton is None or any(name == "triton" for name, _ in _pins(torch)):
        return
    wanted = _other_triton(torch.version, triton.version)
    if wanted is not None:
        yield _pinned("triton_torch_mismatch", torch, "triton", f"{wanted}.*", triton.version, 0.8)


def _pin_finder(cause: str) -> Finder:
    return Finder(id=cause, find=lambda evidence: find_pins(evidence, cause), needs=("python.packages",))


FINDERS: tuple[Finder, ...] = (
    Finder(id="torchvision_torch_mismatch", find=find_torchvision, needs=("python.packages",)),
    _pin_finder("triton_torch_mismatch"),
    Finder(id="triton_torch_mismatch", find=find_triton, needs=("python.packages",)),
    _pin_finder("bundled_cuda_library_missing"),
    _pin_finder("cuda_library_version_differs"),
    Finder(id="mixed_cuda_packages", find=find_mixed_generations, needs=("python.packages",)),
    Finder(id="duplicate_packages", find=find_duplicates, needs=("python.packages",)),
    Finder(id="numpy2_abi", find=find_numpy_abi, needs=("python.packages",)),
    Finder(id="library_path_shadows_bundled", find=find_foreign_libraries),
    # the lists in a text are judged in the same way
    Finder(id="torchvision_torch_mismatch", find=find_torchvision, reads="text"),
    Finder(id="triton_torch_mismatch", find=find_triton, reads="text"),
    Finder(id="numpy2_abi", find=find_numpy_abi, reads="text"),
    Finder(id="mixed_cuda_packages", find=find_mixed_generations, reads="text"),
)
