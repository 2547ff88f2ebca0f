"""Joins the children's reports into one document, then into one frozen Machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import fields, replace

from gpudoc.facts.children import Child
from gpudoc.facts.identify import short_address
from gpudoc.facts.model import (
    Absent,
    Container,
    Driver,
    Gpu,
    Host,
    KernelCheck,
    Link,
    Machine,
    PythonFacts,
    TorchBuild,
)

_GIB = 1 << 30
# section or field -> the worker that should report it, whose failure explains a missing field
_SECTIONS: Mapping[str, tuple[type, str]] = {
    "torch": (TorchBuild, "torch"),
    "python": (PythonFacts, "torch"),
    "host": (Host, "files"),
    "container": (Container, "files"),
    "driver": (Driver, "files"),
}
_WHOLE = {"gpus": "nvml", "amd_gpus": "files", "pci": "files", "nodes": "files", "kernel_log": "slow_files"}
_DRIVER_FIELDS = {
    "nvml_code": "nvml", "nvml_message": "nvml", "nvml_driver_version": "nvml", "cuda_version": "nvml",
    "cu_init_code": "cuda", "cu_init_name": "cuda", "libcuda_path": "cuda", "libcuda_cuda_version": "cuda",
    "cuda_devices": "cuda",
}  # fmt: skip
_DISK_FIELDS = ("disk_free_bytes", "tmp_free_bytes")
_QUICK = "not asked (--quick)"


def machine_from(told: Iterable[Child], environment: Mapping[str, str], *, quick: bool, unasked: str = "") -> Machine:
    """The Machine that the children described; a field that a child did not reach carries that child's failure.

    `unasked` is the reason for fields that no child reads on this system.
    """
    from gpudoc.facts.readers import snapshot

    heard = {child.name: child for child in told}
    document: dict[str, object] = {"environment": dict(environment)}
    for child in heard.values():
        for path, value, is_item in child.facts:
            _put(document, path, value, is_item)
    _name_gaps(document, heard, _QUICK if quick else "", unasked)
    _join_devices(document)
    _join_address(document)
    _name_gpu_gaps(document, _silence(heard.get("nvml")))
    _list_gpus(document)
    failures = {name: child.failure for name, child in heard.items() if child.failure}
    told_failures = document.get("probe_failures")
    failures = {**(told_failures if isinstance(told_failures, dict) else {}), **failures}
    document["probe_failures"] = failures
    _name_gpu_gaps(document, failures.get("nvml", ""))
    _list_gpus(document)
    document["probe_seconds"] = {name: round(child.seconds, 4) for name, child in heard.items()}
    machine = snapshot.load(document)
    return replace(machine, torch=_with_skipped(machine, heard.get("nvml"), heard.get("cuda"), quick=quick))


def with_total(machine: Machine, seconds: float) -> Machine:
    """The same machine with the seconds that collecting took."""
    return replace(machine, probe_seconds={**machine.probe_seconds, "collect": round(seconds, 4)})


def _put(document: MutableMapping[str, object], path: tuple[str, ...], value: object, is_item: bool) -> None:
    place: MutableMapping[str, object] = document
    for part in path[:-1]:
        inner = place.get(part)
        if not isinstance(inner, dict):
            inner = {}
            place[part] = inner
        place = inner
    if is_item:
        items = place.setdefault(path[-1], [])
        if isinstance(items, list):
            items.append(value)
    else:
        place[path[-1]] = value


def _name_gaps(document: dict[str, object], heard: Mapping[str, Child], of_torch: str, unasked: str) -> None:
    for section, (kind, worker) in _SECTIONS.items():
        part = document.setdefault(section, {})
        assert isinstance(part, dict)
        for field in fields(kind):
            by = _DRIVER_FIELDS.get(field.name, worker) if section == "driver" else worker
            by = "slow_files" if field.name in _DISK_FIELDS else by
            told_all = "" if by in ("nvml", "cuda", "torch") else unasked
            reason = _silence(heard.get(by), unasked) or (of_torch if section == "torch" else told_all)
            if field.name not in part and reason:
                part[field.name] = {"absent": reason}
    for section, worker in _WHOLE.items():
        if section not in document:
            document[section] = {"absent": _silence(heard.get(worker), unasked) or unasked or "not reported"}


def _name_gpu_gaps(document: Mapping[str, object], reason: str) -> None:
    """Fill the fields that NVML's worker did not reach, GPU by GPU, with the reason."""
    gpus = document.get("gpus")
    if not reason or not isinstance(gpus, dict) or set(gpus) == {"absent"}:
        return
    for gpu in gpus.values():
        for part, kind in ((gpu, Gpu), (gpu.setdefault("link", {}), Link)):
            for field in fields(kind):
                part.setdefault(field.name, {"absent": reason})


def _silence(child: Child | None, unasked: str = "") -> str:
    """Why this child left a question unanswered; '' if it answered all of them."""
    return child.failure if child is not None else unasked or "not asked"


def _list_gpus(document: dict[str, object]) -> None:
    """Turn the GPUs, which are reported as gpus.0.name, back into a list."""
    gpus = document.get("gpus")
    if isinstance(gpus, dict) and set(gpus) != {"absent"}:
        document["gpus"] = [gpus[key] for key in sorted(gpus, key=int)]


def _join_devices(document: dict[str, object]) -> None:
    """Add facts that only libcuda knows (multiprocessors, cache) to the GPU at the same PCI address."""
    gpus, driver = document.get("gpus"), document.get("driver")
    devices = driver.get("cuda_devices") if isinstance(driver, dict) else None
    if not isinstance(gpus, dict) or not isinstance(devices, list):
        return
    by_address = {short_address(device.get("pci_address")): device for device in devices if isinstance(device, dict)}
    for gpu in gpus.values():
        device = by_address.get(short_address(gpu.get("pci_address"))) if isinstance(gpu, dict) else None
        if device is not None:
            gpu.update({name: device[name] for name in ("sm_count", "l2_cache_bytes") if name in device})


def _join_address(document: Mapping[str, object]) -> None:
    """Set the address of the only GPU without one, if exactly one of the driver's GPUs on the bus is not in NVML."""
    gpus, bus = document.get("gpus"), document.get("pci")
    if not isinstance(gpus, dict) or set(gpus) == {"absent"} or not isinstance(bus, list):
        return
    unnamed = [gpu for gpu in gpus.values() if not isinstance(gpu.get("pci_address"), str)]
    named = {short_address(gpu.get("pci_address")) for gpu in gpus.values()}
    held = [device["address"] for device in bus if device.get("driver") == "nvidia" and _is_display(device)]
    left = [address for address in held if short_address(address) not in named]
    if len(unnamed) == len(left) == 1:
        unnamed[0]["pci_address"] = left[0]


def _is_display(device: Mapping[str, object]) -> bool:
    code = device.get("class_code")
    return isinstance(code, int) and code >> 16 == 0x03


def tryable_devices(nvml: Child, cuda: Child) -> list[int]:
    """CUDA ordinals where a tiny kernel disturbs no other process: no process, default compute mode, 1 GiB free."""
    return [ordinal for ordinal, reason in device_states(nvml, cuda).items() if not reason]


def device_states(nvml: Child, cuda: Child) -> dict[int, str]:
    """CUDA ordinal -> why no kernel may be tried on it, '' if one may."""
    document: dict[str, object] = {}
    for child in (nvml, cuda):
        for path, value, is_item in child.facts:
            _put(document, path, value, is_item)
    driver, gpus = document.get("driver"), document.get("gpus")
    devices = driver.get("cuda_devices") if isinstance(driver, dict) else None
    known = [gpu for gpu in gpus.values() if isinstance(gpu, dict)] if isinstance(gpus, dict) else []
    by_address = {short_address(gpu.get("pci_address")): gpu for gpu in known}
    states: dict[int, str] = {}
    for device in devices if isinstance(devices, list) else []:
        states[int(device["ordinal"])] = _busy(by_address.get(short_address(device.get("pci_address"))))
    return states


def _busy(gpu: Mapping[str, object] | None) -> str:
    if gpu is None:
        return "it is not known who uses the GPU"
    processes, free = gpu.get("processes"), gpu.get("memory_free_bytes")
    if not isinstance(processes, list):
        return "it is not known who uses the GPU"
    if processes:
        return "a process uses the GPU"
    if gpu.get("compute_mode") != "default":
        return f"compute mode {gpu.get('compute_mode')}"
    if not isinstance(free, int) or free < _GIB:
        return "less than 1 GiB is free"
    return ""


def _with_skipped(machine: Machine, nvml: Child | None, cuda: Child | None, *, quick: bool) -> TorchBuild:
    """The torch section with a KernelCheck that gives the reason for each device that was not tried."""
    torch = machine.torch
    if quick or nvml is None or cuda is None or torch.is_available is not True:
        reason = _QUICK if quick else "torch sees no device"
        done = torch.kernel_checks
        return replace(torch, kernel_checks=Absent(reason)) if isinstance(done, Absent) else torch
    checks = () if isinstance(torch.kernel_checks, Absent) else torch.kernel_checks
    tried = {check.device for check in checks}
    left = [
        KernelCheck(device=ordinal, ran=False, skipped=reason or "torch did not get that far")
        for ordinal, reason in device_states(nvml, cuda).items()
        if ordinal not in tried
    ]
    return replace(torch, kernel_checks=(*checks, *left))
