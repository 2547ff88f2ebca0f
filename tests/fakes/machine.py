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
from tests.fakes.hurry import hurried

GIB = 1 << 30
WHEEL = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")


@dataclass(frozen=True, kw_only=True)
class Model:
    """What a kind of GPU answers when it is well and idle; a question that it lacks it calls not supported."""

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
    nvlinks_up: int | None = None
    nvlink_counters: tuple[int, ...] = (161, 162, 163)
    fabric: bool = False
    mig: bool = False
    retires_pages: bool = False
    margin: bool = False
    memory_of_the_system: bool = False
    sm: int = 108


_HOPPER = {"brand": 14, "generation": 5, "ecc": True, "mig": True, "margin": True, "nvlinks": 18, "fabric": True}
_BLACKWELL = {**_HOPPER, "nvlink_counters": (208, 215)}
_GEFORCE = {"brand": 5, "ecc": False, "class_code": 0x030000}

H100 = Model(name="NVIDIA H100 80GB HBM3", device_id=0x2330, capability=(9, 0), memory_gib=80, power_w=700, sm=132,
             **_HOPPER)  # fmt: skip
H200 = Model(name="NVIDIA H200", device_id=0x2335, capability=(9, 0), memory_gib=140, power_w=700, sm=132, **_HOPPER)
B200 = Model(name="NVIDIA B200", device_id=0x2901, capability=(10, 0), memory_gib=179, power_w=1000, sm=148,
             **_BLACKWELL)  # fmt: skip
GB200 = Model(name="NVIDIA GB200", device_id=0x2941, capability=(10, 0), memory_gib=185, power_w=1200, sm=152,
              memory_of_the_system=True, **_BLACKWELL)  # fmt: skip
A100 = Model(name="NVIDIA A100-PCIE-40GB", device_id=0x20F1, capability=(8, 0), memory_gib=40, brand=2, generation=4,
             power_w=250, ecc=True, mig=True)  # fmt: skip
A100_SXM = Model(name="NVIDIA A100-SXM4-80GB", device_id=0x20B2, capability=(8, 0), memory_gib=80, brand=14,
                 generation=4, power_w=400, ecc=True, mig=True, nvlinks=12)  # fmt: skip
A30 = Model(name="NVIDIA A30", device_id=0x20B7, capability=(8, 0), memory_gib=24, brand=14, generation=4, power_w=165,
            ecc=True, mig=True, nvlinks=4, nvlinks_up=0, sm=56)  # fmt: skip
A10G = Model(name="NVIDIA A10G", device_id=0x2237, capability=(8, 6), memory_gib=22, brand=14, generation=4,
             power_w=300, ecc=True, sm=80)  # fmt: skip
L4 = Model(name="NVIDIA L4", device_id=0x27B8, capability=(8, 9), memory_gib=22, brand=14, generation=4, power_w=72,
           ecc=True, margin=True, sm=58)  # fmt: skip
L40S = Model(name="NVIDIA L40S", device_id=0x26B9, capability=(8, 9), memory_gib=45, brand=14, generation=4,
             power_w=350, ecc=True, margin=True, sm=142)  # fmt: skip
T4 = Model(name="Tesla T4", device_id=0x1EB8, capability=(7, 5), memory_gib=15, brand=2, generation=3, power_w=70,
           ecc=True, retires_pages=True, sm=40)  # fmt: skip
V100 = Model(name="Tesla V100-SXM2-32GB", device_id=0x1DB5, capability=(7, 0), memory_gib=32, brand=2, generation=3,
             power_w=300, ecc=True, retires_pages=True, nvlinks=6, nvlink_counters=(38, 45, 52, 59), sm=80)  # fmt: skip
RTX3090 = Model(name="NVIDIA GeForce RTX 3090", device_id=0x2204, capability=(8, 6), memory_gib=24, generation=4,
                power_w=350, nvlinks=4, nvlinks_up=0, sm=82, **_GEFORCE)  # fmt: skip
RTX4090 = Model(name="NVIDIA GeForce RTX 4090", device_id=0x2684, capability=(8, 9), memory_gib=24, generation=4,
                power_w=450, sm=128, **_GEFORCE)  # fmt: skip
RTX5090 = Model(name="NVIDIA GeForce RTX 5090", device_id=0x2B85, capability=(12, 0), memory_gib=32, generation=5,
                power_w=575, sm=170, **_GEFORCE)  # fmt: skip
RTX6000 = Model(name="NVIDIA RTX 6000 Ada Generation", device_id=0x26B1, capability=(8, 9), memory_gib=48, brand=13,
                generation=4, power_w=300, ecc=True, class_code=0x030000, margin=True, sm=142)  # fmt: skip
GTX1080 = Model(name="NVIDIA GeForce GTX 1080 Ti", device_id=0x1B06, capability=(6, 1), memory_gib=11, generation=3,
                power_w=250, sm=28, **_GEFORCE)  # fmt: skip

# NVML's mask of the fabric's health: each "false" is 2, no misconfiguration 1, a partition and its manager 1
FABRIC_IS_WELL = 2 | 2 << 2 | 2 << 4 | 2 << 6 | 1 << 8 | 1 << 12 | 1 << 14

# every question that NVML is asked of one GPU, by the names of the fake library
QUESTIONS = (
    "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetPciInfo", "nvmlDeviceGetBrand", "nvmlDeviceGetVirtualizationMode",
    "nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetMemoryBusWidth", "nvmlDeviceGetGspFirmwareVersion", "nvmlDeviceGetVbiosVersion",
    "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetCurrentClocksEventReasons", "field.74", "field.269", "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetClockInfo.1", "nvmlDeviceGetMaxClockInfo.1", "nvmlDeviceGetClockInfo.2",
    "nvmlDeviceGetMaxClockInfo.2", "nvmlDeviceGetTemperatureThreshold.1", "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementDefaultLimit", "nvmlDeviceGetTemperature.0",
    "nvmlDeviceGetMigMode", "nvmlDeviceGetEccMode", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetDisplayActive", "nvmlDeviceGetNumaNodeId", "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetRepairStatus", "nvmlDeviceGetTotalEccErrors.1.0",
    "nvmlDeviceGetTotalEccErrors.1.1", "nvmlDeviceGetTotalEccErrors.0.1", "nvmlDeviceGetRetiredPagesPendingStatus",
    "field.230", "nvmlDeviceGetNvLinkState", "field.161", "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetGpuMaxPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetPowerManagementLimitConstraints",
    "nvmlDeviceGetNvLinkRemoteDeviceType.0",
)  # fmt: skip

# those that no GPU fails while it is well
MUST_ANSWER = ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo")


class FakeMachine:
    """Built step by step, well at first; a test then breaks one thing and asks what is found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.rules: list[str] = []
        self.hanging: set[str] = set()
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
        """A device behind a port of its own, as wide and as fast as the device."""
        port = f"sys/devices/pci0000:00/port-{address}"
        folder = f"sys/bus/pci/devices/{address}"
        (self.root / port / address).mkdir(parents=True, exist_ok=True)
        link = self.root / folder
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(f"../../../../{port}/{address}")
        self.file(f"{port}/max_link_speed", "16.0 GT/s PCIe\n")
        self.file(f"{port}/max_link_width", "16\n")
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

    def hang(self, function: str, gpu: int | str = "*") -> None:
        """Whoever asks this waits in the kernel."""
        self.hanging.add(function.partition(".")[0])
        self.rule(function, gpu, "stuck", 600)

    def be_silent(self, function: str, gpu: int | str = "*") -> None:
        """The answer does not come in time, and nothing says that it never will."""
        self.hanging.add(function.partition(".")[0])
        self.rule(function, gpu, "delay", 600)

    def kill(self, function: str, gpu: int | str = "*") -> None:
        """The process that asks this is killed, as by the kernel for lack of memory."""
        self.rule(function, gpu, "kill", "-")

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
        domain, bus = divmod(0x17 + 16 * index, 256)
        return f"{domain:04x}:{bus:02x}:00.0"

    def _gpu(self, index: int, model: Model, bus: bool) -> None:
        if bus:
            self.pci(self.address(index), 0x10DE, model.device_id, model.class_code, "nvidia")
            self.file(f"dev/nvidia{index}")
            place = f"proc/driver/nvidia/gpus/{self.address(index)}/information"
            self.file(place, f"Model: \t\t {model.name}\nDevice Minor: \t {index}\n")
        values: dict[str, object] = {
            "nvmlDeviceGetName": model.name,
            "nvmlDeviceGetUUID": f"GPU-{index:08x}-1111-2222-3333-{index:012x}",
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
            "nvmlDeviceGetPowerManagementLimitConstraints": f"{model.power_w * 500} {model.power_w * 1000}",
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
            **{f"field.{counter}": 0 for counter in (74, 75, 76, 269, 270, 271)},
        }
        if model.ecc:
            values |= {
                "nvmlDeviceGetEccMode": "1 1",
                "nvmlDeviceGetTotalEccErrors.1.0": 0,
                "nvmlDeviceGetTotalEccErrors.1.1": 0,
                "nvmlDeviceGetTotalEccErrors.0.1": 3,
            }
            rows = {"nvmlDeviceGetRetiredPagesPendingStatus": 0} if model.retires_pages else {
                "nvmlDeviceGetRemappedRows": "0 0 0 0", "nvmlDeviceGetSramEccErrorStatus": 0}  # fmt: skip
            values |= rows
        if model.mig:
            values["nvmlDeviceGetMigMode"] = "0 0"
        if model.memory_of_the_system:
            values["nvmlDeviceGetNumaNodeId"] = 2
        if model.margin:
            values["nvmlDeviceGetMarginTemperature"] = 53
        if model.nvlinks:
            up = model.nvlinks if model.nvlinks_up is None else model.nvlinks_up
            values["nvmlDeviceGetNvLinkState"] = f"{up} {model.nvlinks}"
            values |= {f"field.{counter}": 0 for counter in model.nvlink_counters}
        if model.fabric:
            # completed, and each of the six parts of its health fine
            values["nvmlDeviceGetGpuFabricInfo"] = f"3 0 {FABRIC_IS_WELL}"
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
        if "import_delay" in said:
            self.hanging.add("import torch")
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
        variables, python = self.prepare()
        with _environment(variables), hurried(self.hanging):
            return facts.collect(root=self.root, python=python, quick=quick, deadlines=deadlines or facts.Deadlines())

    def prepare(self) -> tuple[Mapping[str, str], Path]:
        """The scenario written down; the environment in which the fakes are found, and the Python to examine."""
        (self.folder / "scenario").write_text("\n".join(self.rules) + "\n")
        return self._variables(), self._python()

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
