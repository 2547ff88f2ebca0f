"""A whole machine for tests: files below a root, a driver that follows a scenario, a Python with its torch."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpudoc import facts
from gpudoc.facts.model import Machine
from tests.fakes.build import LIBRARIES, build

GIB = 1 << 30
WHEEL = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")


@dataclass(frozen=True, kw_only=True)
class Model:
    """What a kind of GPU answers when it is well and idle."""

    name: str
    device_id: int
    capability: tuple[int, int]
    memory_gib: int
    brand: int
    generation: int
    power_w: int
    ecc: bool
    class_code: int = 0x030200
    nvlinks: int = 0
    sm: int = 108


H100 = Model(name="NVIDIA H100 80GB HBM3", device_id=0x2330, capability=(9, 0), memory_gib=80, brand=14, generation=5,
             power_w=700, ecc=True, nvlinks=18, sm=132)  # fmt: skip
A100 = Model(name="NVIDIA A100-PCIE-40GB", device_id=0x20F1, capability=(8, 0), memory_gib=40, brand=2, generation=4,
             power_w=250, ecc=True)  # fmt: skip
T4 = Model(name="Tesla T4", device_id=0x1EB8, capability=(7, 5), memory_gib=15, brand=2, generation=3, power_w=70,
           ecc=True, sm=40)  # fmt: skip
RTX4090 = Model(name="NVIDIA GeForce RTX 4090", device_id=0x2684, capability=(8, 9), memory_gib=24, brand=5,
                generation=4, power_w=450, ecc=False, class_code=0x030000, sm=128)  # fmt: skip
RTX5090 = Model(name="NVIDIA GeForce RTX 5090", device_id=0x2B85, capability=(12, 0), memory_gib=32, brand=5,
                generation=5, power_w=575, ecc=False, class_code=0x030000, sm=170)  # fmt: skip
GTX1080 = Model(name="NVIDIA GeForce GTX 1080 Ti", device_id=0x1B06, capability=(6, 1), memory_gib=11, brand=5,
                generation=3, power_w=250, ecc=False, class_code=0x030000, sm=28)  # fmt: skip


class FakeMachine:
    """Built step by step, well at first; a test then breaks one thing and asks what is found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.rules: list[str] = []
        self.environment: dict[str, str] = {}
        self.libraries = {"nvml": False, "cuda": False}
        self.library_folder = "cuda"
        self.said: dict[str, object] = {}
        self.num_gpus = 0
        self.site = folder / "site"
        self.site.mkdir(parents=True)
        self._host()

    # the files of the system

    def file(self, name: str, text: str = "") -> None:
        place = self.root / name.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def remove(self, name: str) -> None:
        place = self.root / name.lstrip("/")
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)

    def _host(self) -> None:
        self.file("proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
        self.file("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet\n")
        self.file("etc/os-release", 'ID=ubuntu\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n')
        self.file("proc/meminfo", "MemTotal: 263854080 kB\nMemAvailable: 251658240 kB\nSwapTotal: 0 kB\n")
        blocks = [
            f"processor\t: {i}\nmodel name\t: AMD EPYC 9354\nphysical id\t: 0\ncore id\t: {i}\nflags\t: avx2 fma"
            for i in range(32)
        ]
        self.file("proc/cpuinfo", "\n\n".join(blocks) + "\n")
        self.file("proc/self/status", "Cpus_allowed_list:\t0-31\n")
        self.file("proc/self/cgroup", "0::/user.slice\n")
        self.file("proc/1/cgroup", "0::/init.scope\n")
        self.file("sys/devices/system/cpu/online", "0-31\n")
        self.file("sys/devices/system/node/node0/cpulist", "0-31\n")
        self.file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
        self.file("proc/modules", "ext4 1 0\n")
        self.file("dev/kmsg", "")
        self.file("dev/shm/.keep")
        (self.root / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
        (self.root / "sys/firmware/efi/efivars").mkdir(parents=True, exist_ok=True)
        self.file("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", "\x06\0\0\0\0")

    def pci(self, address: str, vendor: int, device: int, class_code: int, driver: str | None) -> None:
        folder = f"sys/bus/pci/devices/{address}"
        self.file(f"{folder}/vendor", f"0x{vendor:04x}\n")
        self.file(f"{folder}/device", f"0x{device:04x}\n")
        self.file(f"{folder}/class", f"0x{class_code:06x}\n")
        self.file(f"{folder}/numa_node", "0\n")
        self.file(f"{folder}/current_link_speed", "2.5 GT/s PCIe\n")
        self.file(f"{folder}/max_link_speed", "16.0 GT/s PCIe\n")
        self.file(f"{folder}/current_link_width", "16\n")
        self.file(f"{folder}/max_link_width", "16\n")
        (self.root / folder / "config").write_bytes(vendor.to_bytes(2, "little") + device.to_bytes(2, "little"))
        self.bind(address, driver)

    def bind(self, address: str, driver: str | None) -> None:
        link = self.root / "sys/bus/pci/devices" / address / "driver"
        link.unlink(missing_ok=True)
        if driver is not None:
            link.symlink_to(f"../../../drivers/{driver}")

    def modules(self, *names: str) -> None:
        self.file("proc/modules", "".join(f"{name} 1 0 - Live 0x0\n" for name in (*names, "ext4")))

    def kernel_log(self, *lines: str) -> None:
        self.file("dev/kmsg", "".join(f"{line}\n" for line in lines))

    # the driver

    def rule(self, function: str, gpu: int | str, kind: str, value: object) -> None:
        self.rules.append(f"{function} {gpu} {kind} {value}")

    def error(self, function: str, code: int, gpu: int | str = "*") -> None:
        self.rule(function, gpu, "error", code)

    def hang(self, function: str, gpu: int | str = "*", seconds: float = 600) -> None:
        self.rule(function, gpu, "delay", seconds)

    def answer(self, function: str, value: object, gpu: int | str = "*") -> None:
        self.rule(function, gpu, "value", value)

    def driver(self, version: str = "580.65.06", cuda: tuple[int, int] = (13, 0), *, open_module: bool = True) -> None:
        kind = "Open Kernel Module" if open_module else "Kernel Module"
        line = f"NVRM version: NVIDIA UNIX {kind} for x86_64  {version}  Release Build\n"
        self.file("proc/driver/nvidia/version", line)
        self.file("sys/module/nvidia/version", f"{version}\n")
        self.modules("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
        self.file(f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version}")
        self.file("usr/lib/x86_64-linux-gnu/libcuda.so.1")
        for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
            self.file(f"dev/{name}")
        self.libraries = {"nvml": True, "cuda": True}
        self.answer("nvmlSystemGetDriverVersion", version)
        self.answer("nvmlSystemGetCudaDriverVersion", cuda[0] * 1000 + cuda[1] * 10)
        self.answer("cuDriverGetVersion", cuda[0] * 1000 + cuda[1] * 10)
        self.answer("nvmlDeviceGetCount", 0)
        self.answer("cuDeviceGetCount", 0)

    def gpus(self, model: Model, count: int = 1, *, bus: bool = True) -> None:
        for _ in range(count):
            self._gpu(self.num_gpus, model, bus)
            self.num_gpus += 1
        self.answer("nvmlDeviceGetCount", self.num_gpus)
        self.answer("cuDeviceGetCount", self.num_gpus)

    def address(self, index: int) -> str:
        return f"0000:{0x17 + 16 * index:02x}:00.0"

    def _gpu(self, index: int, model: Model, bus: bool) -> None:
        if bus:
            self.pci(self.address(index), 0x10DE, model.device_id, model.class_code, "nvidia")
            self.file(f"dev/nvidia{index}")
        values: dict[str, object] = {
            "nvmlDeviceGetName": model.name,
            "nvmlDeviceGetUUID": f"GPU-{index:08x}-1111-2222-3333-{model.device_id:012x}",
            "nvmlDeviceGetPciInfo": f"0000{self.address(index)}",
            "nvmlDeviceGetBrand": model.brand,
            "nvmlDeviceGetVbiosVersion": "96.00.61.00.01",
            "nvmlDeviceGetCudaComputeCapability": f"{model.capability[0]} {model.capability[1]}",
            "nvmlDeviceGetNumGpuCores": model.sm * 128,
            "nvmlDeviceGetMemoryBusWidth": 384,
            "nvmlDeviceGetVirtualizationMode": 0,
            "nvmlDeviceGetMemoryInfo": f"{model.memory_gib * GIB} {600 << 20}",
            "nvmlDeviceGetBAR1MemoryInfo": f"{model.memory_gib * GIB} 0 0",
            "nvmlDeviceGetUtilizationRates": 0,
            "nvmlDeviceGetCurrentClocksEventReasons": 1,
            "nvmlDeviceGetPerformanceState": 8,
            "nvmlDeviceGetClockInfo.1": 210,
            "nvmlDeviceGetMaxClockInfo.1": 1980,
            "nvmlDeviceGetClockInfo.2": 405,
            "nvmlDeviceGetMaxClockInfo.2": 2619,
            "nvmlDeviceGetPowerUsage": 45000,
            "nvmlDeviceGetEnforcedPowerLimit": model.power_w * 1000,
            "nvmlDeviceGetPowerManagementDefaultLimit": model.power_w * 1000,
            "nvmlDeviceGetTemperature.0": 34,
            "nvmlDeviceGetTemperatureThreshold.1": 87,
            "nvmlDeviceGetPersistenceMode": 1,
            "nvmlDeviceGetComputeMode": 0,
            "nvmlDeviceGetDisplayActive": 0,
            "nvmlDeviceGetCurrPcieLinkGeneration": 1,
            "nvmlDeviceGetMaxPcieLinkGeneration": model.generation,
            "nvmlDeviceGetGpuMaxPcieLinkGeneration": model.generation,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetPcieReplayCounter": 0,
            "cuDeviceGetName": model.name,
            "cuDeviceGetPCIBusId": self.address(index),
            "attribute.16": model.sm,
            "attribute.18": 0,
            "attribute.75": model.capability[0],
            "attribute.76": model.capability[1],
            "attribute.38": 50 << 20,
            "field.230": 0,
            "field.74": 0,
        }
        if model.ecc:
            values |= {
                "nvmlDeviceGetEccMode": "1 1",
                "nvmlDeviceGetTotalEccErrors.1.0": 0,
                "nvmlDeviceGetTotalEccErrors.1.1": 0,
                "nvmlDeviceGetTotalEccErrors.0.1": 3,
                "nvmlDeviceGetRemappedRows": "0 0 0 0",
                "nvmlDeviceGetMigMode": "0 0",
            }
        if model.nvlinks:
            values |= {"nvmlDeviceGetNvLinkState": f"{model.nvlinks} {model.nvlinks}", "nvmlDeviceGetGpuFabricInfo": 3}
        for function, value in values.items():
            self.answer(function, value, index)

    # the examined Python

    def torch(self, version: str = "2.13.0+cu130", cuda: str | None = "13.0", *, hip: str | None = None,
              archs: tuple[str, ...] = WHEEL, available: bool | None = None, **said: object) -> None:  # fmt: skip
        self.said = {
            "version": version, "cuda": cuda, "hip": hip, "archs": list(archs) if cuda or hip else [], "threads": 32,
            "available": bool(cuda or hip) and self.num_gpus > 0 if available is None else available,
            "count": self.num_gpus, **said,
        }  # fmt: skip
        place = self.site / "torch"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        shutil.copy(Path(__file__).with_name("torch_fake.py"), place / "__init__.py")
        (place / "said.json").write_text(json.dumps(self.said))
        (place / "version.py").write_text(f"__version__ = {version!r}\ncuda = {cuda!r}\nhip = {hip!r}\n")
        self.package("torch", version)

    def package(self, name: str, version: str, *requires: str, site: Path | None = None) -> None:
        place = (site or self.site) / f"{name.replace('-', '_')}-{version}.dist-info"
        for old in place.parent.glob(f"{name.replace('-', '_')}-*.dist-info"):
            shutil.rmtree(old)
        place.mkdir(parents=True)
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {line}" for line in requires)]
        (place / "METADATA").write_text("\n".join(lines) + "\n")

    def forget(self, name: str) -> None:
        for old in self.site.glob(f"{name.replace('-', '_')}-*.dist-info"):
            shutil.rmtree(old)

    def _python(self) -> Path:
        path = self.folder / "python"
        more = os.pathsep.join([str(self.site), *(str(p) for p in sorted(self.folder.glob("site-*")))])
        # -S leaves the real site-packages out, so that only the scenario's packages are installed
        path.write_text(f'#!/bin/sh\nPYTHONPATH="{more}" exec "{sys.executable}" -S "$@"\n')
        path.chmod(0o755)
        return path

    # the question

    def collect(self, *, quick: bool = False, deadlines: facts.Deadlines | None = None) -> Machine:
        """The facts of this machine, from real workers that load the fakes."""
        (self.folder / "scenario").write_text("\n".join(self.rules) + "\n")
        with _environment(self._variables()):
            return facts.collect(
                root=self.root, python=self._python(), quick=quick, deadlines=deadlines or facts.Deadlines()
            )

    def _variables(self) -> Mapping[str, str]:
        fakes = build()
        places = {"nvml": "nvml", "cuda": self.library_folder}
        folders = [str(fakes / (places[name] if there else f"no-{name}")) for name, there in self.libraries.items()]
        return {
            "PATH": os.environ["PATH"],
            "FAKE_SCENARIO": str(self.folder / "scenario"),
            "FAKE_ROOT": str(self.root),
            "LD_LIBRARY_PATH": os.pathsep.join(folders),
            "LD_PRELOAD": str(fakes / "system" / LIBRARIES["system"]),
            **self.environment,
        }


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
