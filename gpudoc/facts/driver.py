"""The GPU driver as the kernel and the file system show it: modules, versions, device files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from gpudoc.facts.container import ROOT
from gpudoc.facts.files import WITHOUT_WAITING, exists, list_names, read_text
from gpudoc.facts.model import Absent, DeviceNode, Driver, Fact
from gpudoc.patterns import MULTILINE, Pattern

_MODULES = (
    "nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "nouveau", "nova_core", "vfio_pci",
    "amdgpu", "xe", "i915",
)  # fmt: skip
_LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/lib/wsl/lib",
    "usr/local/nvidia/lib64", "run/opengl-driver/lib",
)  # fmt: skip
_ALWAYS = ("dev/nvidiactl", "dev/nvidia-uvm")


def collect(root: Path = ROOT) -> Driver:
    """The driver as described by the kernel and the installed libraries, without asking the driver itself."""
    proc = read_text(root, "proc/driver/nvidia/version")
    module = read_text(root, "sys/module/nvidia/version")
    version = module if not isinstance(module, Absent) else _version_in(proc)
    modules = loaded_modules(root)
    library, libcuda = _library_versions(root)
    return Driver(
        vendor=_vendor(version, modules),
        module_version=version,
        library_version=library,
        open_kernel_module=proc if isinstance(proc, Absent) else "Open Kernel Module" in proc,
        modules=modules,
        libcuda_system_path=libcuda,
        preserve_memory_on_suspend=_parameter(root, "PreserveVideoMemoryAllocations"),
    )


def collect_nodes(root: Path = ROOT) -> Fact[tuple[DeviceNode, ...]]:
    """The device files of NVIDIA, AMD and WSL GPUs, each opened once for reading and writing (`ls -l /dev/nvidia*`)."""
    names = list_names(root, "dev")
    if isinstance(names, Absent):
        return names
    present = [
        f"dev/{name}" for name in names if Pattern(r"nvidia\d+|nvidia-uvm-tools|nvidia-modeset|dxg|kfd").fullmatch(name)
    ]
    renders = list_names(root, "dev/dri")
    if "dev/kfd" in present and not isinstance(renders, Absent):
        present += [f"dev/dri/{name}" for name in renders if name.startswith("renderD")]
    return tuple(_node(root, name) for name in dict.fromkeys([*_ALWAYS, *present]))


def loaded_modules(root: Path = ROOT) -> Fact[tuple[str, ...]]:
    """The kernel modules of GPU drivers that are loaded (`lsmod`); in a container these are the host's."""
    text = read_text(root, "proc/modules")
    if isinstance(text, Absent):
        return text
    loaded = {line.split(" ", 1)[0] for line in text.splitlines()}
    return tuple(name for name in _MODULES if name in loaded)


def _node(root: Path, name: str) -> DeviceNode:
    path = f"/{name}"
    if not exists(root, name):
        return DeviceNode(path=path, exists=False, error="no such file")
    try:
        os.close(os.open(root / name, os.O_RDWR | WITHOUT_WAITING))
    except OSError as error:
        # EPERM means that the device cgroup refused, EACCES that the file mode did; they need different remedies
        code = errno.errorcode.get(error.errno or 0, "?")
        return DeviceNode(path=path, exists=True, opens=False, error=f"{code}: {(error.strerror or '').lower()}")
    return DeviceNode(path=path, exists=True, opens=True)


def _version_in(text: Fact[str]) -> Fact[str]:
    if isinstance(text, Absent):
        return text
    match = Pattern(r"Kernel Module[^\n]{0,80}?\s(\d{3,}\.\d+(?:\.\d+)?)\s").search(text)
    return match[1] if match else Absent("no version in /proc/driver/nvidia/version")


def _vendor(version: Fact[str], modules: Fact[tuple[str, ...]]) -> Fact[str]:
    if not isinstance(version, Absent):
        return "nvidia"
    if isinstance(modules, Absent):
        return modules
    return next((vendor for name, vendor in (("nvidia", "nvidia"), ("amdgpu", "amd")) if name in modules), "none")


def _library_versions(root: Path) -> tuple[Fact[str], Fact[str]]:
    """(version in the file names of the driver's libraries, path of libcuda) from the first folder that has them."""
    for folder in _LIBRARY_FOLDERS:
        names = list_names(root, folder)
        if isinstance(names, Absent):
            continue
        versions = [m[1] for name in names if (m := Pattern(r"libnvidia-ml\.so\.(\d{3,}\.[\d.]+)").fullmatch(name))]
        libcuda = f"/{folder}/libcuda.so.1" if "libcuda.so.1" in names else Absent("not in the system's folders")
        if versions or "libcuda.so.1" in names or "libnvidia-ml.so.1" in names:
            return (versions[-1] if versions else Absent("no version in the library's file name")), libcuda
    nothing = Absent("no driver library in the system's folders")
    return nothing, nothing


def _parameter(root: Path, name: str) -> Fact[int]:
    text = read_text(root, "proc/driver/nvidia/params")
    if isinstance(text, Absent):
        return text
    match = Pattern(rf"^{name}: (\d+)$", MULTILINE).search(text)
    return int(match[1]) if match else Absent("the driver does not list it")
