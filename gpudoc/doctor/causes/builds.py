"""Compare torch's build with the GPU and its driver: accelerator, CUDA version, compiled code, a tiny kernel."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.cards import cards_at
from gpudoc.doctor.causes import live
from gpudoc.doctor.causes.per_gpu import skip_of
from gpudoc.doctor.model import Card, Evidence, Finder, Finding, Severity, Skip
from gpudoc.facts.model import Absent, Fact, Gpu, KernelCheck, Machine, known_or
from gpudoc.facts.topology import NVIDIA
from gpudoc.knowledge.drivers import cuda_of_driver, driver_floor, driver_runs_cuda
from gpudoc.knowledge.wheels import fit
from gpudoc.patterns import Pattern

# SIGKILL and SIGTERM are not here: they come from other processes
_DIED = Pattern(r"^ended by SIG(?:SEGV|ILL|BUS|ABRT|FPE) while asking: import torch$")
_OF_JETSONS = {"sm_53", "sm_62", "sm_72", "sm_87", "sm_101", "sm_110"}
_NO_CODE = ("no kernel image", "not compatible with the current PyTorch", "invalid device function")


def nvidia_gpu_in_reach(machine: Machine) -> bool:
    """Whether the machine has an NVIDIA GPU that is meant for this process; a container without access has none."""
    if live.nvml_gpus(machine) or live.is_jetson(machine):
        return True
    if known_or(machine.container.kind, "none") != "none" and not live.gpu_nodes(machine):
        return False
    return bool(live.pci_gpus(machine, NVIDIA)) and not live.is_wsl(machine)


def find_cpu_only(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A torch without any accelerator in a machine with a GPU."""
    machine = evidence.machine
    if machine.torch.accelerator != "cpu" or live.is_jetson(machine):
        return
    gpus = live.nvml_gpus(machine)
    if not nvidia_gpu_in_reach(machine) and not live.compute_gpus_amd(machine):
        return
    built = live.observe("torch", f"{machine.torch.version}, built for the CPU", "torch")
    seen = (built, live.observe("GPU", live.name_of(gpus[0]) if gpus else _bus_name(machine), "NVML"))
    yield Finding(id="cpu_only_torch", confidence=0.93, evidence=seen, explains=("training_on_cpu",))


def _bus_name(machine: Machine) -> str:
    devices = (*live.pci_gpus(machine, NVIDIA), *live.compute_gpus_amd(machine))
    return f"device {devices[0].vendor_id:04x}:{devices[0].device_id:04x} at {devices[0].address}"


def find_wrong_accelerator(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A torch for another vendor's GPU than the one in the machine."""
    machine = evidence.machine
    nvidia, amd = nvidia_gpu_in_reach(machine), bool(live.compute_gpus_amd(machine))
    built = machine.torch.accelerator
    wrong = (built == "rocm" and nvidia and not amd) or (built == "cuda" and amd and not nvidia)
    if wrong or (built == "xpu" and nvidia):
        seen = (
            live.observe("torch", f"{machine.torch.version}, built for {built}", "torch"),
            live.observe("GPU", "NVIDIA" if nvidia else "AMD", "PCI bus"),
        )
        yield Finding(id="wrong_accelerator_build", confidence=0.95, evidence=seen, explains=("training_on_cpu",))


def find_jetson_wheel(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A wheel from the general index on a Jetson: without CUDA, or without code for its GPU."""
    machine = evidence.machine
    if not live.is_jetson(machine):
        return
    archs = known_or(machine.torch.arch_list, ())
    if machine.torch.accelerator == "cpu" or (archs and _OF_JETSONS.isdisjoint(archs)):
        seen = (
            live.observe("torch", f"{machine.torch.version}, built for {machine.torch.accelerator}", "torch"),
            live.observe("machine", "Jetson", "/proc/device-tree/model"),
        )
        yield Finding(id="jetson_generic_wheel", confidence=0.93, evidence=seen)


def find_driver_too_old(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A driver for an older CUDA major version than torch's; minor versions are compatible."""
    machine = evidence.machine
    built = machine.torch.cuda_version
    if isinstance(built, Absent):
        yield Skip(f"torch.cuda_version: {built.reason}")
        return
    carried = _driver_cuda(machine)
    if isinstance(carried, Absent):
        yield Skip(f"driver.cuda_version: {carried.reason}")
        return
    compat = known_or(machine.driver.libcuda_cuda_version, carried)
    if driver_runs_cuda(carried, built) or (driver_runs_cuda(compat, built) and machine.driver.cu_init_code == 0):
        return
    needed = driver_floor(built, windows=machine.has_windows_driver)
    seen = (
        live.observe("driver", f"{_driver_version(machine)} (CUDA {carried[0]}.{carried[1]})", "NVML"),
        live.observe("torch", f"{machine.torch.version}, built with CUDA {built[0]}.{built[1]}", "torch"),
        *([live.observe("needed", f"driver {needed} or newer", "CUDA release notes")] if needed else []),
    )
    yield Finding(id="driver_too_old", confidence=0.96, evidence=seen, explains=("training_on_cpu",))


def _driver_version(machine: Machine) -> str:
    # the libraries' version is left out: without their module it says nothing about the running driver
    known = (machine.driver.nvml_driver_version, machine.driver.module_version)
    return next((version for version in known if not isinstance(version, Absent)), "unknown")


def _driver_cuda(machine: Machine) -> tuple[int, int] | Absent:
    """The driver's CUDA version from NVML, else from the table by the module's version."""
    said = machine.driver.cuda_version
    if not isinstance(said, Absent):
        return said
    version = _driver_version(machine)
    return said if version == "unknown" else cuda_of_driver(version, windows=machine.has_windows_driver) or said


def find_archs(evidence: Evidence) -> Iterator[Finding | Skip]:
    """GPUs for which torch has no code because they are newer than the build or were dropped from it."""
    machine = evidence.machine
    archs = machine.torch.arch_list
    if isinstance(archs, Absent) or machine.torch.accelerator != "cuda" or live.is_jetson(machine):
        return
    misfits: dict[str, list[Gpu]] = {}
    unread: list[tuple[str, int]] = []
    for gpu in live.nvml_gpus(machine):
        if isinstance(gpu.capability, Absent):
            unread.append((f"capability: {gpu.capability.reason}", gpu.index))
        elif (answer := fit(gpu.capability, archs)) != "runs":
            misfits.setdefault(answer, []).append(gpu)
    yield from skip_of(unread)
    failed = [check for check in _checks(machine) if any(word in check.error for word in _NO_CODE)]
    for misfit, gpus in misfits.items():
        cause = "gpu_newer_than_wheel_archs" if misfit == "too_new" else "gpu_older_than_wheel_archs"
        seen = [live.seen_of(gpu, f"{gpu.name} has compute capability {_dotted(gpu.capability)}") for gpu in gpus[:2]]
        seen.append(live.observe("torch", f"{machine.torch.version} has code for {', '.join(archs)}", "torch"))
        seen += [live.observe("kernel", check.error, "torch") for check in failed[:1]]
        everything, cards = len(gpus) == len(live.nvml_gpus(machine)), tuple(map(Card.of, gpus))
        severity: Severity = "broken" if everything or failed else "warning"
        yield Finding(id=cause, severity=severity, confidence=0.97, cards=cards, evidence=tuple(seen))


def _dotted(capability: Fact[tuple[int, int]]) -> str:
    return "unknown" if isinstance(capability, Absent) else f"{capability[0]}.{capability[1]}"


def _only(cause: str) -> Finder:
    def find(evidence: Evidence) -> Iterator[Finding | Skip]:
        return (answer for answer in find_archs(evidence) if not isinstance(answer, Finding) or answer.id == cause)

    return Finder(id=cause, find=find, needs=("torch.arch_list", "gpus"))


def find_failed_kernel(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A tiny kernel that failed for another reason than missing code."""
    machine = evidence.machine
    failed = [c for c in _checks(machine) if c.error and not any(word in c.error for word in _NO_CODE)]
    if failed:
        seen = tuple(live.observe(f"kernel on device {check.device}", check.error, "torch") for check in failed[:3])
        devices = machine.driver.cuda_devices
        places = {} if isinstance(devices, Absent) else {device.ordinal: device.pci_address for device in devices}
        cards = cards_at((places[check.device] for check in failed if check.device in places), machine)
        yield Finding(id="gpu_kernel_fails", confidence=0.6, cards=cards, evidence=seen)
    yield from skip_of((f"no kernel tried: {c.skipped}", c.device) for c in _checks(machine) if c.skipped)


def _checks(machine: Machine) -> tuple[KernelCheck, ...]:
    return known_or(machine.torch.kernel_checks, ())


def find_mps(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A torch built for Apple's MPS on a macOS that does not offer it."""
    machine = evidence.machine
    if machine.host.system == "Darwin" and machine.torch.mps_built is True and machine.torch.mps_available is False:
        seen = (live.observe("macOS", machine.host.distribution, "platform"),
                live.observe("torch.backends.mps.is_available()", "False", "torch"))  # fmt: skip
        yield Finding(id="mps_macos_too_old", confidence=0.8, evidence=seen)


def find_no_torch(evidence: Evidence) -> Iterator[Finding | Skip]:
    """No torch in the examined Python, which may well be the wrong Python."""
    machine = evidence.machine
    if isinstance(machine.torch.version, Absent) and machine.torch.version.reason == "torch is not installed":
        seen = (live.observe("torch", "not installed", "site-packages"),
                live.observe("Python", machine.python.executable, "examined"))  # fmt: skip
        yield Finding(id="torch_not_installed", severity="info", confidence=0.9, evidence=seen)


def find_hung_import(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A torch that did not import within the deadline."""
    failure = evidence.machine.probe_failures.get("torch", "")
    if failure.startswith("no answer"):
        seen = (live.observe("torch", failure, "probe"),)
        yield Finding(id="torch_not_answering", severity="warning", confidence=0.9, evidence=seen)


def find_dying_import(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A torch whose import ends the process by a signal that its own code causes."""
    failure = evidence.machine.probe_failures.get("torch", "")
    if _DIED.search(failure):
        yield Finding(id="torch_import_crashes", confidence=0.95, evidence=(live.observe("torch", failure, "probe"),))


FINDERS: tuple[Finder, ...] = (
    Finder(id="cpu_only_torch", find=find_cpu_only, needs=("torch.accelerator",)),
    Finder(id="wrong_accelerator_build", find=find_wrong_accelerator, needs=("torch.accelerator",)),
    Finder(id="jetson_generic_wheel", find=find_jetson_wheel, needs=("torch.accelerator",)),
    Finder(id="driver_too_old", find=find_driver_too_old),
    _only("gpu_newer_than_wheel_archs"),
    _only("gpu_older_than_wheel_archs"),
    Finder(id="mps_macos_too_old", find=find_mps, needs=("torch.mps_built",)),
    Finder(id="gpu_kernel_fails", find=find_failed_kernel, needs=("torch.kernel_checks",)),
    Finder(id="torch_not_installed", find=find_no_torch),
    Finder(id="torch_not_answering", find=find_hung_import),
    Finder(id="torch_import_crashes", find=find_dying_import),
)
