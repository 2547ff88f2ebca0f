"""Machines as facts, built by hand: well ones to start from, and a way to change one fact deep inside."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from gpudoc.doctor.model import Evidence, Expectation, Finding, Skip
from gpudoc.facts.model import (
    Absent,
    Container,
    CudaDevice,
    DeviceNode,
    Driver,
    Gpu,
    Host,
    KernelCheck,
    Link,
    Machine,
    Package,
    PciDevice,
    PythonFacts,
    TorchBuild,
)

GIB = 1 << 30


def gpu(index: int = 0, **changes: Any) -> Gpu:
    """An idle H100 that is well."""
    values: dict[str, Any] = {
        "index": index, "name": "NVIDIA H100 80GB HBM3", "brand": "nvidia", "uuid": f"GPU-{index:08x}-0000",
        "pci_address": f"0000:{index + 16:02x}:00.0", "capability": (9, 0), "memory_total_bytes": 80 * GIB,
        "memory_used_bytes": GIB // 2, "memory_free_bytes": 79 * GIB, "processes": (), "utilization_percent": 0,
        "sm_clock_mhz": 210, "sm_clock_max_mhz": 1980, "throttle_reasons": ("gpu_idle",), "temperature_c": 34,
        "temperature_slowdown_c": 87, "performance_state": 8, "compute_mode": "default", "mig_enabled": False,
        "ecc_uncorrected_volatile": 0, "rows_remap_pending": False, "rows_remap_failed": False, "recovery_action": 0,
        "retired_pages_pending": False, "sram_threshold_exceeded": False, "repair_pending": False,
        "ecc_uncorrected_aggregate": 0, "ecc_enabled": True, "ecc_pending": True, "mig_pending": False,
        "temperature_margin_c": 50, "thermal_slowdown_ns": 0, "power_limit_w": 700.0, "power_limit_default_w": 700.0,
        "memory_accounted_bytes": 0, "virtualization": "none", "mig_instances": Absent("MIG is off"),
        "link": Link(generation=1, generation_max=5, width=16, width_max=16, replays=0, replays_added=0),
        "nvlink_active": 18, "nvlink_total": 18, "nvlink_errors": 0, "nvlink_errors_added": 0,
        "fabric_state": "completed", "fabric_status": 0, "fabric_health": (),
        "lost": False, "nvml_code": 0, "licensed": Absent("not a virtual GPU"),
    }  # fmt: skip
    return Gpu(**values | changes)


def machine(*gpus: Gpu) -> Machine:
    """A host with these GPUs (one H100 unless given), a fitting driver and a fitting torch."""
    cards = gpus or (gpu(),)
    return Machine(
        pci=tuple(
            PciDevice(address=f"0000:{g.index + 16:02x}:00.0", vendor_id=0x10DE, device_id=0x2330, class_code=0x030200,
                      driver="nvidia", answers=True, minor=g.index)
            for g in cards
        ),
        nodes=tuple(
            DeviceNode(path=path, exists=True, opens=True)
            for path in ("/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia{g.index}" for g in cards))
        ),
        driver=Driver(vendor="nvidia", module_version="580.65.06", library_version="580.65.06", cuda_version=(13, 0),
                      modules=("nvidia", "nvidia_uvm"), nvml_code=0, nvml_message="ok", cu_init_code=0,
                      cu_init_name="CUDA_SUCCESS", libcuda_path="/usr/lib/libcuda.so.1",
                      cuda_devices=tuple(CudaDevice(ordinal=g.index, pci_address=g.pci_address) for g in cards)),
        gpus=cards,
        torch=TorchBuild(version="2.13.0+cu130", accelerator="cuda", cuda_version=(13, 0), arch_list=("sm_80", "sm_90"),
                         is_available=True, device_count=len(cards), num_threads=8, location="/venv/lib/torch",
                         loaded_libraries=(),
                         kernel_checks=tuple(KernelCheck(device=g.index, ran=True) for g in cards)),
        python=PythonFacts(version="3.11.7", executable="/venv/bin/python", manager="venv", prefix="/venv",
                           packages=(Package(name="torch", version="2.13.0+cu130", location="/venv/lib"),)),
        host=Host(system="Linux", wsl=False, jetson=False, secure_boot=False, cpu_count=32, cpus_usable=32.0,
                  memory_available_bytes=100 * GIB, shm_total_bytes=64 * GIB, disk_free_bytes=100 * GIB,
                  tmp_free_bytes=100 * GIB, open_files_limit=1024, processes_limit=100000),
        container=Container(kind="none", scheduler="none", cpu_quota_cores=Absent("no CPU quota in the cgroup"),
                            gpus_asked=Absent("no environment variable of a scheduler names GPUs")),
        environment={},
        kernel_log=(),
    )  # fmt: skip


def changed(whole: Any, path: str, value: Any) -> Any:
    """`whole` with the fact at the dotted `path` ('gpus.0.link.width') replaced."""
    head, _, rest = path.partition(".")
    if isinstance(whole, tuple):
        place = int(head)
        inner = changed(whole[place], rest, value) if rest else value
        return (*whole[:place], inner, *whole[place + 1 :])
    return replace(whole, **{head: changed(getattr(whole, head), rest, value) if rest else value})


def known_facts(whole: Any, at: str = "") -> list[str]:
    """The dotted paths of all facts that are not absent, sections and lists included."""
    paths: list[str] = []
    for field in fields(whole):
        value = getattr(whole, field.name)
        path = f"{at}{field.name}"
        if is_dataclass(value) and not isinstance(value, Absent):
            paths += known_facts(value, f"{path}.")
        elif str(field.type).startswith("Fact") and not isinstance(value, Absent):
            paths.append(path)
        if isinstance(value, tuple):
            paths += [p for i, v in enumerate(value) if is_dataclass(v) for p in known_facts(v, f"{path}.{i}.")]
    return paths


def ask(find: Any, facts: Machine, **expected: Any) -> list[Finding | Skip]:
    """All answers of one finder on a live machine."""
    return list(find(Evidence(source="machine", machine=facts, expectation=Expectation(**expected))))


def found(find: Any, facts: Machine, **expected: Any) -> list[tuple[str, str]]:
    """(id, severity) of what one finder finds."""
    return [(a.id, a.severity) for a in ask(find, facts, **expected) if isinstance(a, Finding)]
