"""The first links of the chain: the GPU on the bus, the kernel driver that holds it, its device files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoc.doctor.cards import cards_at
from gpudoc.doctor.causes import kernel_events, live
from gpudoc.doctor.model import Card, Evidence, Finding, Observation, Severity, Skip
from gpudoc.facts.model import Absent, DeviceNode, Machine, PciDevice, known_or
from gpudoc.facts.topology import NVIDIA
from gpudoc.units import format_count


def look_at_bus(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Is there a GPU at all? `no_gpu_on_machine`, for WSL `wsl_windows_or_kernel_too_old`."""
    machine = evidence.machine
    if live.is_wsl(machine):
        yield from _look_at_wsl(evidence)
        return
    if _gpu_is_there(machine):
        return
    if isinstance(machine.pci, Absent) and not machine.pci.reason.startswith("no such file"):
        yield Skip(f"pci: {machine.pci.reason}")
        return
    asked = live.variables(machine).get("NVIDIA_VISIBLE_DEVICES", "")
    strongly = live.gpu_was_asked(evidence)
    weakly = asked not in live.NO_GPU_ASKED
    seen = [live.observe("pci", "no GPU of NVIDIA and no accelerator of AMD", "/sys/bus/pci/devices")]
    if strongly:
        seen.append(live.observe("asked for", _what_asked(evidence), "options and environment"))
    elif weakly:
        seen.append(live.observe("NVIDIA_VISIBLE_DEVICES", asked, "environment"))
    severity: Severity = "broken" if strongly else "warning" if weakly else "info"
    yield Finding(id="no_gpu_on_machine", severity=severity, confidence=0.95, evidence=tuple(seen))


def _gpu_is_there(machine: Machine) -> bool:
    known = live.nvidia_is_there(machine) or live.compute_gpus_amd(machine) or live.nvml_gpus(machine)
    seen_by_torch = known_or(machine.torch.device_count, 0) > 0 or known_or(machine.torch.mps_available, False)
    is_apple = known_or(machine.host.system, "") == "Darwin"
    return bool(known) or seen_by_torch or live.is_jetson(machine) or is_apple


def _look_at_wsl(evidence: Evidence) -> Iterator[Finding | Skip]:
    machine = evidence.machine
    if isinstance(machine.nodes, Absent):
        yield Skip(f"nodes: {machine.nodes.reason}")
    elif "/dev/dxg" not in live.nodes(machine) and not live.nvml_gpus(machine):
        seen = (
            live.observe("/dev/dxg", "missing", "/dev"),
            live.observe("kernel", machine.host.kernel, "/proc/sys/kernel/osrelease"),
        )
        severity: Severity = "broken" if live.gpu_is_meant(evidence) else "info"
        yield Finding(id="wsl_windows_or_kernel_too_old", severity=severity, confidence=0.9, evidence=seen)


def _what_asked(evidence: Evidence) -> str:
    expected = evidence.expectation
    if expected.num_gpus:
        return f"{format_count(expected.num_gpus, 'GPU')} (--expect-gpus)"
    if expected.device.startswith("cuda"):
        return expected.device
    return f"{evidence.machine.container.gpus_asked} (scheduler)"


def look_at_answer(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Does every GPU still answer on the bus? `gpu_fallen_off_bus`."""
    machine = evidence.machine
    silent = [device for device in live.pci_gpus(machine, NVIDIA) if device.answers is False]
    lost = [gpu for gpu in live.nvml_gpus(machine) if gpu.lost is True]
    seen = [live.observe("config space", f"{d.address} reads as all ones", "/sys/bus/pci/devices") for d in silent]
    seen += [live.seen_of(gpu, f"is lost (code 15 from {known_or(gpu.nvml_question, 'NVML')})") for gpu in lost]
    if seen:
        cards = (*cards_at((device.address for device in silent), machine), *map(Card.of, lost))
        yield Finding(id="gpu_fallen_off_bus", confidence=0.98, evidence=tuple(seen), cards=cards)
    fallen = [finding for finding in kernel_events.findings(evidence) if finding.id == "gpu_fallen_off_bus"]
    yield from fallen
    if not seen and not fallen and isinstance(machine.pci, Absent) and isinstance(machine.gpus, Absent):
        yield Skip(f"pci: {machine.pci.reason}")


def look_at_kernel_driver(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Which kernel driver holds the GPU? nouveau, vfio-pci, none, or one that refuses it."""
    machine = evidence.machine
    devices = live.pci_gpus(machine, NVIDIA)
    if not devices or live.is_wsl(machine) or live.is_jetson(machine) or machine.driver.nvml_code == 0:
        return
    holders = {device.address: known_or(device.driver, "") for device in devices}
    if "nvidia" in holders.values():
        return
    held = [f"{address}: {name or 'none'}" for address, name in holders.items()][:3]
    seen = tuple(live.observe("kernel driver", one, "/sys/bus/pci/devices") for one in held)
    if "nouveau" in holders.values():
        yield Finding(id="nouveau_loaded", confidence=0.97, evidence=seen)
    elif "vfio-pci" in holders.values():
        severity: Severity = "broken" if live.gpu_is_meant(evidence) else "info"
        yield Finding(id="gpu_bound_to_vfio", severity=severity, confidence=0.95, evidence=seen)
    elif isinstance(machine.driver.modules, Absent):
        yield Skip(f"driver.modules: {machine.driver.modules.reason}")
    elif "nvidia" in machine.driver.modules:
        yield _refused(machine, seen)
    else:
        yield _not_loaded(machine, devices, seen)


def _refused(machine: Machine, seen: tuple[Observation, ...]) -> Finding:
    """The finding for a module that is loaded but did not take the GPU."""
    told = _not_started(machine)
    if told is not None:
        return replace(told, evidence=(*told.evidence, *seen))
    said = live.logged(machine, "nvrm")[:2]
    loaded = live.observe("kernel module", "nvidia is loaded", "/proc/modules")
    confidence = 0.9 if said else 0.7
    return Finding(id="driver_does_not_support_gpu", confidence=confidence, evidence=(loaded, *seen, *said))


def _not_started(machine: Machine) -> Finding | None:
    """The kernel log's reason why an adapter did not start, as a fault of this moment; None if it gives none."""
    said = kernel_events.findings(Evidence(source="machine", machine=machine))
    reasons = [finding for finding in said if finding.id in kernel_events.NOT_STARTED]
    return replace(reasons[0], severity="broken") if reasons else None


def _not_loaded(machine: Machine, devices: tuple[PciDevice, ...], seen: tuple[Observation, ...]) -> Finding:
    rejected = live.logged(machine, "module_rejected")[:1]
    library = machine.driver.library_version
    if machine.host.secure_boot is True and (rejected or not isinstance(library, Absent)):
        secure = live.observe("Secure Boot", "on", "/sys/firmware/efi/efivars")
        confidence = 0.97 if rejected else 0.7
        return Finding(id="secure_boot_blocks_module", confidence=confidence, evidence=(secure, *rejected, *seen))
    loaded = live.observe("kernel module", "nvidia is not loaded", "/proc/modules")
    package = live.observe("driver libraries", library, "library folders")
    shown = (loaded, package, *seen[: len(devices)])
    return Finding(id="driver_missing_or_not_loaded", confidence=0.95, evidence=shown)


def look_at_nodes(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Are the device files there, and may this user open them?"""
    machine = evidence.machine
    if live.is_wsl(machine) or live.is_jetson(machine) or not live.nvidia_is_there(machine):
        return
    if isinstance(machine.nodes, Absent):
        yield Skip(f"nodes: {machine.nodes.reason}")
        return
    present = live.gpu_nodes(machine)
    control = live.nodes(machine).get("/dev/nvidiactl")
    if not present or control is None or not control.exists:
        yield from _no_nodes(evidence, present)
        return
    refused = [node for node in present if node.opens is False]
    if len(refused) == len(present) or control.opens is False:
        yield _refused_nodes(machine, (*refused, *([control] if control.opens is False else [])))
        return
    yield from _look_at_uvm(machine)


def _no_nodes(evidence: Evidence, present: tuple[DeviceNode, ...]) -> Iterator[Finding]:
    machine = evidence.machine
    if machine.driver.nvml_code == 0 and live.nvml_gpus(machine):
        return
    missing = "/dev/nvidiactl" if present else "/dev/nvidia0"
    seen = [live.observe(missing, "missing", "/dev")]
    if live.in_container(machine):
        asked = live.variables(machine).get("NVIDIA_VISIBLE_DEVICES", "not set")
        seen.append(live.observe("container", machine.container.kind, "container markers"))
        seen.append(live.observe("NVIDIA_VISIBLE_DEVICES", asked, "environment"))
        severity: Severity = "broken" if live.gpu_is_meant(evidence) else "info"
        yield Finding(id="container_without_gpu_access", severity=severity, confidence=0.95, evidence=tuple(seen))
    else:
        seen.append(live.observe("kernel module", machine.driver.modules, "/proc/modules"))
        yield Finding(id="device_nodes_missing", confidence=0.93, evidence=tuple(seen))


def _refused_nodes(machine: Machine, refused: tuple[DeviceNode, ...]) -> Finding:
    seen = tuple(live.observe(node.path, f"cannot be opened ({node.error})", "open()") for node in refused[:3])
    refusals = {live.refusal(node) for node in refused} - {""}
    if "EPERM" in refusals and live.in_container(machine):
        return Finding(id="container_lost_gpu_cgroup", confidence=0.95, evidence=seen)
    if refusals:
        return Finding(id="device_permission_denied", confidence=0.95, evidence=seen)
    told = _not_started(machine)
    if told is not None:
        return replace(told, evidence=(*seen, *told.evidence))
    return Finding(id="gpu_hardware_fault", confidence=0.6, evidence=seen)


def _look_at_uvm(machine: Machine) -> Iterator[Finding]:
    node = live.nodes(machine).get("/dev/nvidia-uvm")
    if node is None or (node.exists and node.opens is not False) or machine.driver.cu_init_code == 0:
        return
    loaded = f"nvidia_uvm is {'' if 'nvidia_uvm' in known_or(machine.driver.modules, ()) else 'not '}loaded"
    module = live.observe("kernel module", loaded, "/proc/modules")
    seen = (live.observe("/dev/nvidia-uvm", node.error or "missing", "/dev"), module)
    if node.exists and live.refusal(node):
        yield Finding(id="device_permission_denied", confidence=0.9, evidence=seen)
    else:
        yield Finding(id="nvidia_uvm_missing", confidence=0.95, evidence=seen)


def look_at_amd(evidence: Evidence) -> Iterator[Finding | Skip]:
    """The short chain of AMD: the amdgpu module, /dev/kfd, and who may open it."""
    machine = evidence.machine
    devices = live.compute_gpus_amd(machine)
    if not devices or live.pci_gpus(machine, NVIDIA):
        return
    holders = [known_or(device.driver, "none") for device in devices]
    if "amdgpu" not in holders:
        seen = (live.observe("kernel driver", ", ".join(dict.fromkeys(holders)), "/sys/bus/pci/devices"),)
        yield Finding(id="driver_missing_or_not_loaded", confidence=0.9, evidence=seen)
        return
    kfd = live.nodes(machine).get("/dev/kfd")
    if isinstance(machine.nodes, Absent):
        yield Skip(f"nodes: {machine.nodes.reason}")
    elif kfd is None:
        missing = "container_without_gpu_access" if live.in_container(machine) else "device_nodes_missing"
        yield Finding(id=missing, confidence=0.9, evidence=(live.observe("/dev/kfd", "missing", "/dev"),))
    elif kfd.opens is False:
        denied = (live.observe("/dev/kfd", kfd.error, "open()"),)
        yield Finding(id="device_permission_denied", confidence=0.95, evidence=denied)
