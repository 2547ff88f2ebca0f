"""Whether the torch build, the driver, the GPU and the packages that a text reports fit together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoc.doctor.causes.sign import Sign, finders, quote, text_finder, words
from gpudoc.doctor.diagnose import observe
from gpudoc.doctor.model import Evidence, Finding, Observation, Skip
from gpudoc.doctor.setting import known
from gpudoc.facts.model import Machine, Package
from gpudoc.facts.readers.model import Text
from gpudoc.knowledge.compatibility import archs_of, capability_of, vision_for
from gpudoc.knowledge.drivers import cuda_of_driver, driver_floor
from gpudoc.knowledge.wheels import fit

_WANTS_GPU = words(
    r"is_available\(\)\W{0,8}False",
    r"not compiled with CUDA",
    r"no CUDA",
    r"can'?t use (?:the )?gpu",
    r"gpu (?:is )?not (?:used|found|available|detected|working|recogni[sz]ed)",
    r"\bcuda\b.{0,40}(?:not available|False|unavailable|not enabled)",
    r"\.cuda\(\)",
    r"\.to\(['\"]cuda",
    r"requested GPUs?",
    r"device=['\"]?(?:cuda|0)",
    r"AssertionError",
    r"slow\w*",
)
_WORKS = words(r"Is CUDA available: (?:True|Yes)")


def _origin(evidence: Evidence, fact: str) -> str:
    return evidence.reading.origins.get(fact, "the text") if evidence.reading else ""


def _seen(evidence: Evidence, fact: str, value: object) -> Observation:
    return observe(fact, value, _origin(evidence, fact))


def _text_machine(evidence: Evidence) -> Machine | None:
    # on a live machine the chain asks the driver itself; what a text says is all there is only for a text
    return None if evidence.source == "machine" else evidence.machine


def _find_cpu_only(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    machine = _text_machine(evidence)
    if machine is None or machine.torch.is_available is True or known(machine.host.system) == "Darwin":
        return
    version = known(machine.torch.version)
    if known(machine.torch.accelerator) not in ("cpu", "none") or known(machine.torch.hip_version) is not None:
        return
    seen = [_seen(evidence, "torch.version", version)] if version is not None else []
    seen.append(_seen(evidence, "torch.accelerator", "built without CUDA"))
    has_gpu = bool(known(machine.gpus)) or known(machine.driver.module_version) is not None
    wants = text.find(_WANTS_GPU)
    if has_gpu or wants:
        yield Finding(id="cpu_only_torch", confidence=0.94 if has_gpu else 0.8, evidence=tuple(seen))
    else:
        yield Finding(id="cpu_only_torch", confidence=0.5, severity="info", evidence=tuple(seen))


def _find_old_driver(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del text
    machine = _text_machine(evidence)
    if machine is None or machine.torch.is_available is True:
        return
    driver, cuda = known(machine.driver.module_version), known(machine.torch.cuda_version) or _conda_toolkit(machine)
    if driver is None or cuda is None:
        return
    floor = driver_floor(cuda)
    offered = known(machine.driver.cuda_version) or cuda_of_driver(driver)
    if floor is not None and _number(driver) < _number(floor):
        why = f"torch is built for CUDA {cuda[0]}.{cuda[1]}, which needs driver {floor} or newer; {driver} is installed"
        seen = (
            _seen(evidence, "driver.module_version", driver),
            _seen(evidence, "torch.cuda_version", f"{cuda[0]}.{cuda[1]}"),
        )
        yield Finding(id="driver_too_old", confidence=0.92, title=why, evidence=seen)
    elif offered is not None and offered[0] < cuda[0]:
        carried = _seen(evidence, "driver.cuda_version", f"{offered[0]}.{offered[1]}")
        yield Finding(id="driver_too_old", confidence=0.85, evidence=(carried,))


def _conda_toolkit(machine: Machine) -> tuple[int, int] | None:
    for package in known(machine.python.packages) or ():
        if package.name in ("cudatoolkit", "pytorch-cuda", "cuda-runtime") and (
            m := re.match(r"(\d+)\.(\d+)", package.version)
        ):
            return int(m[1]), int(m[2])
    return None


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


_NOT_COMPATIBLE = words(
    r"is not compatible with the current PyTorch",
    r"no longer supports this GPU",
    r"no kernel image is available",
    "hipErrorNoBinaryForGpu",
    r"minimum (?:and maximum )?cuda capability supported",
    "invalid device function",
    r"Unable to find code object",
)


def _find_arch(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    machine = _text_machine(evidence)
    if machine is None:
        return
    said = text.find(_NOT_COMPATIBLE)
    archs = known(machine.torch.arch_list) or archs_of(known(machine.torch.cuda_version))
    for gpu in known(machine.gpus) or ():
        capability = known(gpu.capability) or capability_of(known(gpu.name) or "")
        if capability is None or not archs:
            continue
        match = fit(capability, archs)
        if match == "runs":
            continue
        listed = known(machine.torch.arch_list) is not None
        sure = 0.95 if said else 0.85 if listed else 0.7
        if machine.torch.is_available is True and not said and not listed:
            sure = 0.6
        name = "gpu_newer_than_wheel_archs" if match == "too_new" else "gpu_older_than_wheel_archs"
        seen = [
            _seen(
                evidence, f"gpus.{gpu.index}.capability", f"{known(gpu.name) or 'GPU'}: {capability[0]}.{capability[1]}"
            )
        ]
        seen.append(_seen(evidence, "torch.arch_list", " ".join(archs)))
        yield Finding(id=name, confidence=sure, evidence=(*seen, *((quote(said, "torch"),) if said else ())))
        return
    yield from _arch_by_words(text)


def _arch_by_words(text: Text) -> Iterator[Finding | Skip]:
    old = text.find(
        words(
            r"no longer supports this GPU because it is too old",
            r"minimum cuda capability supported by this library",
            r"(?:gpu|card) (?:is )?too old\b",
            r"only supports devices of CUDA Capability >= \d",
            r"CUDA capability .{0,30}(?:or higher|at least).{0,20}required",
        )
    )
    if old:
        yield Finding(id="gpu_older_than_wheel_archs", confidence=0.9, evidence=(quote(old, "torch"),))
        return
    new = text.find(
        words(
            r"is not compatible with the current PyTorch",
            r"'?sm_\d+'? is not a recognized processor",
            r"Value 'sm_\d+a?' is not defined for option 'gpu-name'",
            r"Unsupported gpu architecture 'compute_\d+",
            r"Unsupported (?:GPU|\.target) .{0,20}sm_1[0-2]\d",
            r"no kernel image.{0,300}(?:RTX 50\d\d|blackwell|sm_1[0-2]\d|B200)",
            r"(?:RTX 50\d\d|blackwell|sm_1[0-2]\d|B200).{0,300}no kernel image",
            "hipErrorNoBinaryForGpu",
        )
    )
    if new:
        yield Finding(id="gpu_newer_than_wheel_archs", confidence=0.85, evidence=(quote(new, "torch"),))
        return
    generic = text.find(words(r"no kernel image is available", "invalid device function"))
    if generic:
        yield Finding(id="gpu_newer_than_wheel_archs", confidence=0.55, evidence=(quote(generic, "error"),))
        yield Finding(id="gpu_older_than_wheel_archs", confidence=0.45, evidence=(quote(generic, "error"),))


def _find_other_vendor(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    machine = _text_machine(evidence)
    if machine is None or machine.torch.is_available is True:
        return
    built = known(machine.torch.accelerator)
    names = " ".join(known(g.name) or "" for g in known(machine.gpus) or ())
    nvidia = known(machine.driver.module_version) is not None or re.search(
        r"(?i)nvidia|geforce|tesla|quadro|rtx|gtx", names
    )
    amd = re.search(r"(?i)\bamd\b|radeon|\bmi\d{2,3}\b|gfx\d", names) or text.find(
        words(
            r"\brocm\b(?! used)",
            r"rocm-smi|rocminfo",
            r"\bradeon\b",
            r"\bgfx\d{3,4}\b",
            r"AMD GPU",
            "/dev/kfd",
        )
    )
    intel = text.find(words(r"Intel\(?R?\)? ?Arc", r"\bxpu\b", "level[- ]zero", r"Intel .{0,20}(?:GPU|Graphics)"))
    amd_only = text.find(words(r"ROCM used to build PyTorch: N/A", r"ROCM used to build PyTorch: None"))
    if built == "rocm" and nvidia:
        yield Finding(
            id="wrong_accelerator_build", confidence=0.93, evidence=(_seen(evidence, "torch.accelerator", "rocm"),)
        )
    elif built == "cuda" and not nvidia and (amd or (intel and not amd_only)):
        yield Finding(
            id="wrong_accelerator_build", confidence=0.85, evidence=(_seen(evidence, "torch.accelerator", "cuda"),)
        )
    elif built in ("cpu", "none") and not nvidia and amd:
        yield Finding(
            id="wrong_accelerator_build", confidence=0.6, evidence=(_seen(evidence, "torch.accelerator", "cpu"),)
        )


def _find_jetson(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    machine = _text_machine(evidence)
    if machine is None or known(machine.host.jetson) is not True:
        return
    trouble = (
        machine.torch.is_available is False
        or text.find(_WANTS_GPU)
        or text.find(_NOT_COMPATIBLE)
        or text.find(words("cannot open shared object", "not available", "CPU", "error"))
    )
    if trouble and machine.torch.is_available is not True:
        yield Finding(id="jetson_generic_wheel", confidence=0.9, evidence=(_seen(evidence, "host.jetson", "a Jetson"),))


def _find_vision(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del text
    machine = _text_machine(evidence)
    packages = {p.name: p for p in (known(machine.python.packages) if machine else None) or ()}
    torch, vision = packages.get("torch") or packages.get("pytorch"), packages.get("torchvision")
    if torch is None or vision is None:
        return
    wanted = vision_for(torch.version)
    if wanted is not None and not vision.version.startswith(wanted):
        seen = (
            _seen(
                evidence,
                "packages.torchvision",
                f"{vision.version} beside torch {torch.version}, which belongs to {wanted}.x",
            ),
        )
        yield Finding(id="torchvision_torch_mismatch", confidence=0.62, severity="warning", evidence=seen)
    tags = [re.search(r"\+(cpu|cu\d+)", p.version) for p in (torch, vision)]
    if tags[0] and tags[1] and tags[0][1] != tags[1][1]:
        seen = (_seen(evidence, "packages.torchvision", f"{vision.version} beside torch {torch.version}"),)
        yield Finding(id="torchvision_torch_mismatch", confidence=0.85, severity="warning", evidence=seen)


def _find_mixed(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    machine = _text_machine(evidence)
    packages = (known(machine.python.packages) if machine else None) or ()
    generations: dict[str, list[str]] = {}
    for package in packages:
        for generation in _generation(package):
            generations.setdefault(generation, []).append(f"{package.name} {package.version}")
    twice = _two_builds(packages)
    if len(generations) < 2 and not twice:
        return
    works = (
        machine is not None
        and machine.torch.is_available is True
        and not text.find(words("undefined symbol", "cannot open shared", "mismatch", "CUBLAS", "CUDNN_STATUS"))
    )
    value = twice or "; ".join(f"CUDA {g}: {', '.join(names[:3])}" for g, names in sorted(generations.items()))
    yield Finding(
        id="mixed_cuda_packages",
        confidence=0.6 if works else 0.86,
        severity="warning" if works else "broken",
        evidence=(observe("packages", value, _origin(evidence, f"packages.{packages[0].name}")),),
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
    text_finder("cpu_only_torch", _find_cpu_only),
    text_finder("driver_too_old", _find_old_driver),
    text_finder("gpu_newer_than_wheel_archs", _find_arch),
    text_finder("wrong_accelerator_build", _find_other_vendor),
    text_finder("jetson_generic_wheel", _find_jetson),
    text_finder("torchvision_torch_mismatch", _find_vision),
    text_finder("mixed_cuda_packages", _find_mixed),
    *finders(
        Sign(
            id="cpu_only_torch",
            said=words(
                r"Torch not compiled with CUDA enabled",
                r"PyTorch (?:was )?(?:built|compiled|installed) without (?:CUDA|GPU)",
                r"not (?:compiled|built|linked) with (?:CUDA|GPU)\b",
                r"(?:torch|pytorch)\W{0,4}(?:==)?[\d.]+\+cpu",
                r"download\.pytorch\.org/whl/cpu",
                r"_pytorch_select .{0,60}cpu",
                r"pytorch-mutex .{0,40}cpu",
                r"\bcpuonly\b",
                r"pytorch .{0,24}\bcpu_(?:py|generic|mkl)?\w*",
                r"CPU[- ]only (?:version|build|wheel|torch|pytorch)",
                r"torch-[\d.]+-cp\d+\S*-win_amd64\.whl",
                r"torch\.version\.cuda\W{0,12}None",
                r"Could not run 'aten::\S+' with arguments from the 'CUDA' backend",
            ),
            unless=words(r"Is CUDA available: (?:True|Yes)", r"mac ?os", r"torchvision::nms"),
            sure=0.85,
        ),
        Sign(
            id="wrong_accelerator_build",
            said=words(
                r"libamdhip64\.so\S*: cannot open",
                r"\+rocm[\d.]*.{0,400}(?:nvidia|geforce|rtx)",
                r"(?:nvidia|geforce|rtx).{0,400}\+rocm[\d.]+",
                r"No HIP GPUs are available",
                r"(?:amd|radeon|rocm).{0,200}(?:\+cu\d{3}|CUDA (?:version|build) of (?:torch|pytorch))",
                r"Torch not compiled with (?:ROCm|XPU)",
                r"built for (?:rocm|cuda).{0,60}(?:nvidia|amd)",
            ),
            unless=_WORKS,
            sure=0.8,
        ),
        Sign(
            id="jetson_generic_wheel",
            said=words(r"\bjetson\b", r"\btegra\b", r"\bjetpack\b", r"\bl4t\b", r"\borin\b", "xavier"),
            also=words(
                r"is_available\(\)\W{0,8}False",
                r"not compiled with CUDA",
                r"cannot open shared",
                r"\+cpu",
                r"no CUDA",
                r"Is CUDA available: False",
                "CUDA not available",
            ),
            sure=0.88,
        ),
    ),
)
