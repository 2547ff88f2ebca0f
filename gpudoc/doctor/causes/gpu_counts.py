"""Compare the numbers of GPUs on the bus, in NVML, in CUDA, and as promised; an unexplained difference is a finding."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.live import (
    NO_GPU_ASKED,
    in_container,
    is_wsl,
    nodes,
    nvml_gpus,
    observe,
    pci_gpus,
    refusal,
    variables,
)
from gpudoc.doctor.causes.visibility import read_mask
from gpudoc.doctor.model import Card, Evidence, Finder, Finding, Skip
from gpudoc.facts.identify import short_address
from gpudoc.facts.model import NOT_SUPPORTED, Absent, Fact, Gpu, Machine, PciDevice
from gpudoc.facts.topology import EXCLUDED, NO_DRIVER, NVIDIA

_OPTION = "--expect-gpus"


def find_missing(evidence: Evidence) -> Iterator[Finding | Skip]:
    """GPUs on the bus that NVML does not list, without a known reason, although the driver holds them or their kind."""
    machine = evidence.machine
    if is_wsl(machine):
        return
    gpus, devices = nvml_gpus(machine), pci_gpus(machine, NVIDIA)
    unread = [d.driver.reason for d in devices if isinstance(d.driver, Absent) and d.driver != NO_DRIVER]
    held = [device for device in devices if device.driver == "nvidia"]
    models = {device.device_id for device in held}
    bare = [device for device in devices if device.driver == NO_DRIVER and device.device_id in models]
    listed = [short_address(gpu.pci_address) for gpu in gpus if not isinstance(gpu.pci_address, Absent)]
    unlisted = [device for device in held if short_address(device.address) not in listed]
    # a GPU without an address in NVML is one of these, and has its own finding
    if unread or (not bare and len(unlisted) <= len(gpus) - len(listed)):
        yield from (Skip(f"pci.driver: {reason}") for reason in unread[:1])
        return
    kept = {device.address: _kept_from_us(machine, device) for device in (*unlisted, *bare)}
    unheld = "no driver holds it, although nvidia holds the others of its kind"
    missing = [(d, "held by the nvidia driver, not listed by NVML") for d in unlisted if not kept[d.address]]
    missing += [(d, unheld) for d in bare if not kept[d.address]]
    if not missing:
        return
    seen = [observe(device.address, text, "/sys/bus/pci") for device, text in missing]
    seen.append(observe("GPUs", f"{len(held)} held by the driver, {len(gpus)} listed by NVML", "NVML"))
    cards = tuple(Card(pci_address=device.address) for device, _ in missing)
    yield Finding(id="gpu_missing_from_driver", confidence=0.93, cards=cards, evidence=tuple(seen))


def _kept_from_us(machine: Machine, device: PciDevice) -> str:
    """Why this process may not have a GPU: the container or the scheduler did not give it; '' if it may."""
    if device.minor == EXCLUDED:
        return EXCLUDED.reason
    node = None if isinstance(device.minor, Absent) else nodes(machine).get(f"/dev/nvidia{device.minor}")
    if node is None or not node.exists:
        return "not given to the container" if in_container(machine) else ""
    return f"{node.path} may not be opened ({node.error})" if node.opens is False and refusal(node) else ""


def find_fewer_in_cuda(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Fewer devices in CUDA than NVML lists and CUDA_VISIBLE_DEVICES allows."""
    machine = evidence.machine
    devices, gpus = machine.driver.cuda_devices, nvml_gpus(machine)
    if isinstance(devices, Absent) or machine.driver.cu_init_code != 0:
        yield Skip("cuInit did not succeed")
        return
    # a GPU that does not answer may have instances; one that cannot have any says "not supported"
    for mode in (gpu.mig_enabled for gpu in gpus):
        if isinstance(mode, Absent) and not mode.reason.endswith(NOT_SUPPORTED):
            yield Skip(f"mig_enabled: {mode.reason}")
            return
        if mode is True:
            yield Skip("with MIG on CUDA lists instances")
            return
    mask = variables(machine).get("CUDA_VISIBLE_DEVICES")
    chosen = gpus if mask is None else read_mask(mask, gpus)[0]
    usable = [gpu for gpu in chosen if gpu.compute_mode != "prohibited"]
    if len(devices) >= len(usable):
        return
    there = {short_address(device.pci_address) for device in devices}
    named = [gpu for gpu in usable if not isinstance(gpu.pci_address, Absent)]
    cards = tuple(Card.of(gpu) for gpu in named if short_address(gpu.pci_address) not in there)
    seen = [observe("devices", f"{len(devices)} in CUDA, {len(usable)} in NVML", "libcuda")]
    seen += [observe(card.label, "not among CUDA's devices", "libcuda") for card in cards]
    yield Finding(id="cuda_lists_fewer_gpus", severity="warning", confidence=0.85, cards=cards, evidence=tuple(seen))


def find_fewer_than_asked(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Fewer answering GPUs than an option, the scheduler or the container's runtime promised."""
    machine = evidence.machine
    promised = list(_promised(evidence))
    if not promised:
        return
    if isinstance(machine.gpus, Absent):
        yield Skip(f"gpus: {machine.gpus.reason}")
        return
    answering = [gpu for gpu in machine.gpus if gpu.nvml_code == 0]
    for number, who in promised:
        # a user counts cards; schedulers and runtimes count a MIG instance as a GPU
        usable = len(answering) if who == _OPTION else sum(map(_num_units, answering))
        if 0 < usable < number:
            seen = (observe("GPUs", f"{usable} usable, {number} expected ({who})", "NVML"),)
            severity = "broken" if number == evidence.expectation.num_gpus else "warning"
            yield Finding(id="fewer_gpus_than_expected", severity=severity, confidence=0.9, evidence=seen)  # type: ignore[arg-type]
            return


def _promised(evidence: Evidence) -> Iterator[tuple[int, str]]:
    machine = evidence.machine
    if evidence.expectation.num_gpus:
        yield evidence.expectation.num_gpus, _OPTION
    asked: Fact[str] = machine.container.gpus_asked
    on_node = variables(machine).get("SLURM_GPUS_ON_NODE", "")
    if not isinstance(asked, Absent) and on_node.isdecimal():
        # the node's number is for the whole step; with --gpus-per-task, a task gets and sees fewer GPUs
        own = ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS")
        of_task = next((name for name in own if variables(machine).get(name, "").strip()), "")
        yield (_num_named(variables(machine)[of_task]), of_task) if of_task else (int(on_node), "SLURM_GPUS_ON_NODE")
    given = variables(machine).get("NVIDIA_VISIBLE_DEVICES", "")
    if in_container(machine) and given not in (*NO_GPU_ASKED, "all"):
        yield _num_named(given), "NVIDIA_VISIBLE_DEVICES"


def _num_named(names: str) -> int:
    return len([entry for entry in names.split(",") if entry.strip()])


def _num_units(gpu: Gpu) -> int:
    """How many GPUs a scheduler counts for this one."""
    return gpu.mig_instances if gpu.mig_enabled is True and not isinstance(gpu.mig_instances, Absent) else 1


FINDERS: tuple[Finder, ...] = (
    Finder(id="gpu_missing_from_driver", find=find_missing, needs=("pci", "gpus", "nodes", "container.kind")),
    Finder(id="cuda_lists_fewer_gpus", find=find_fewer_in_cuda, needs=("gpus", "driver.cuda_devices", "environment")),
    Finder(id="fewer_gpus_than_expected", find=find_fewer_than_asked, needs=("environment",)),
)
