"""A node's description of itself: its GPUs, its software, and doctor's findings, as a record of one node."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence

import gpudoc
from gpudoc.bench.target import BenchTarget
from gpudoc.doctor.examine import examine_machine
from gpudoc.facts.container import ROOT
from gpudoc.facts.files import read_text
from gpudoc.facts.identify import gpu_at, pci_of
from gpudoc.facts.model import NOT_READ, Absent, Fact, Machine
from gpudoc.facts.topology import nearest_network_device
from gpudoc.fleet.documents import record_to_json
from gpudoc.fleet.record import FleetGpu, FleetNode, FleetRecord, node_id


def describe_node(target: BenchTarget, devices: Sequence[str], *, leads: bool) -> dict[str, object]:
    """A fleet document with only this node, its GPUs in the order of `devices`, already without names of hosts and
    people. A rank that does not lead its node describes only its own GPUs.
    """
    machine = target.machine
    gpus = tuple(_describe_gpu(index, device, machine) for index, device in enumerate(devices))
    if not leads:
        return record_to_json(FleetRecord(nodes=(FleetNode(gpus=gpus),)))
    report = examine_machine(machine)
    node = FleetNode(
        gpus=gpus,
        id=_own_id(),
        switch=_switch(os.environ),
        versions=versions(machine, on_gpu=target.choice.device == "cuda"),
        doctor=report.verdict,
        findings=report.findings,
        unchecked=report.skipped,
    )
    return record_to_json(FleetRecord(nodes=(node,)))


def _describe_gpu(index: int, device: str, machine: Machine) -> FleetGpu:
    kind, _, ordinal = device.partition(":")
    if kind == "cpu":
        return FleetGpu(index=index, model=machine.host.cpu_model)
    gpu = gpu_at(int(ordinal), machine)
    if gpu is None:
        return FleetGpu(index=index, model=Absent("neither NVML nor libcuda describes it"))
    rail = NOT_READ if isinstance(gpu.pci_address, Absent) else nearest_network_device(gpu.pci_address)
    return FleetGpu.of(gpu, pci_of(gpu, machine), rail)


def _own_id() -> Fact[str]:
    text = read_text(ROOT, "etc/machine-id")
    if isinstance(text, Absent):
        return text
    return node_id(text) if text else Absent("/etc/machine-id is empty, as in many containers")


def _switch(variables: Mapping[str, str]) -> Fact[str]:
    """The switch above this node, if SLURM knows the network (`scontrol show topology`)."""
    names, kinds = variables.get("SLURM_TOPOLOGY_ADDR", ""), variables.get("SLURM_TOPOLOGY_ADDR_PATTERN", "")
    switches = [n for n, kind in zip(names.split("."), kinds.split("."), strict=False) if kind == "switch"]
    return switches[-1] if switches else Absent("no scheduler names it")


def versions(machine: Machine, *, on_gpu: bool) -> dict[str, Fact[str]]:
    """Software and firmware that all ranks of one job should share; on a CPU torch replaces cuBLAS."""
    driver, torch, host = machine.driver, machine.torch, machine.host
    cuda: Fact[str] = torch.cuda_version if isinstance(torch.cuda_version, Absent) else _dotted(torch.cuda_version)
    # some containers see the module but not the library, others only NVML
    told = (driver.module_version, driver.nvml_driver_version, driver.library_version)
    module: Fact[str] = next((one for one in told if not isinstance(one, Absent)), told[0])
    found: dict[str, Fact[str]] = {
        "driver": module if on_gpu else "none",
        "cuda": cuda,
        "cublas": _package(machine, "nvidia-cublas") if on_gpu else torch.version,
        "cudnn": torch.cudnn_version,
        "nccl": _package(machine, "nvidia-nccl"),
        "torch": torch.version,
        "python": platform.python_version(),
        "gpudoc": gpudoc.__version__,
        "kernel": host.kernel,
        "distribution": host.distribution,
        "libc": host.libc_version,
        "container": machine.container.kind,
        "cpu": host.cpu_model,
    }
    gpus = () if isinstance(machine.gpus, Absent) else machine.gpus
    for name in ("vbios", "gsp_firmware"):
        seen = [getattr(gpu, name) for gpu in gpus]
        known = sorted({value for value in seen if not isinstance(value, Absent)})
        if gpus:
            found[name] = ", ".join(known) if known else seen[0]
    return found


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _package(machine: Machine, prefix: str) -> Fact[str]:
    packages = machine.python.packages
    if isinstance(packages, Absent):
        return packages
    own = (one.version for one in packages if one.name == prefix or one.name.startswith(f"{prefix}-cu"))
    return next(own, Absent("it comes from no Python package"))
