"""libcuda's answers: cuInit's code and the devices, read through ctypes without making a context."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path

from gpudoc.facts.model import Absent, CudaDevice, Fact
from gpudoc.facts.telling import Teller

# cuda.h declares its functions as __stdcall for Windows, but a 64-bit program calls them like any other function
LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
# enum CUresult and CUdevice_attribute of cuda.h, CUDA 13.0; compared with the header on 2026-11-21
NAMES = {
    0: "CUDA_SUCCESS", 1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY", 3: "CUDA_ERROR_NOT_INITIALIZED",
    34: "CUDA_ERROR_STUB_LIBRARY", 46: "CUDA_ERROR_DEVICE_UNAVAILABLE", 100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE", 214: "CUDA_ERROR_ECC_UNCORRECTABLE", 304: "CUDA_ERROR_OPERATING_SYSTEM",
    802: "CUDA_ERROR_SYSTEM_NOT_READY", 803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", 805: "CUDA_ERROR_MPS_CONNECTION_FAILED",
    806: "CUDA_ERROR_MPS_RPC_FAILURE", 807: "CUDA_ERROR_MPS_SERVER_NOT_READY", 999: "CUDA_ERROR_UNKNOWN",
}  # fmt: skip
_SM_COUNT, _CLOCK_KHZ, _MEMORY_CLOCK_KHZ, _BUS_BITS, _L2_BYTES, _MAJOR, _MINOR, _INTEGRATED = (
    16,
    13,
    36,
    37,
    38,
    75,
    76,
    18,
)


def collect(teller: Teller) -> None:
    """Report cuInit's code, the loaded libcuda, and each device that CUDA sees (environment masks apply)."""
    teller.begin(f"loading {LIBRARY}")
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        teller.fact("driver.cu_init_code", Absent(f"libcuda cannot be loaded: {error}"))
        return
    if sys.platform == "linux":
        teller.fact("driver.libcuda_path", _loaded_path())
    teller.begin("cuInit")
    code = int(library.cuInit(0))
    teller.fact("driver.cu_init_code", code)
    teller.fact("driver.cu_init_name", NAMES.get(code, f"CUDA error {code}"))
    version = _number(library.cuDriverGetVersion)
    teller.fact(
        "driver.libcuda_cuda_version",
        version if isinstance(version, Absent) else (version // 1000, version % 1000 // 10),
    )
    if code:
        return
    teller.begin("cuDeviceGetCount")
    count = _number(library.cuDeviceGetCount)
    if isinstance(count, Absent):
        teller.fact("driver.cuda_devices", count)
        return
    teller.fact("driver.cuda_devices", tuple(_device(library, teller, ordinal) for ordinal in range(count)))


def _device(library: ctypes.CDLL, teller: Teller, ordinal: int) -> CudaDevice:
    teller.begin(f"attributes of CUDA device {ordinal}")
    handle = ctypes.c_int()
    if library.cuDeviceGet(ctypes.byref(handle), ordinal) != 0:
        return CudaDevice(ordinal=ordinal)

    def attribute(number: int) -> Fact[int]:
        value = ctypes.c_int()
        code = library.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
        return value.value if code == 0 else Absent(f"{NAMES.get(code, code)}")

    major, minor = attribute(_MAJOR), attribute(_MINOR)
    integrated = attribute(_INTEGRATED)
    return CudaDevice(
        ordinal=ordinal,
        name=_string(lambda text, size: library.cuDeviceGetName(text, size, handle), 256),
        pci_address=_lower(_string(lambda text, size: library.cuDeviceGetPCIBusId(text, size, handle), 32)),
        capability=major if isinstance(major, Absent) else minor if isinstance(minor, Absent) else (major, minor),
        sm_count=attribute(_SM_COUNT),
        clock_mhz=_mhz(attribute(_CLOCK_KHZ)),
        memory_clock_mhz=_mhz(attribute(_MEMORY_CLOCK_KHZ)),
        memory_bus_bits=attribute(_BUS_BITS),
        l2_cache_bytes=attribute(_L2_BYTES),
        integrated=integrated if isinstance(integrated, Absent) else bool(integrated),
    )


def _number(function: Callable[..., int]) -> Fact[int]:
    value = ctypes.c_int()
    code = function(ctypes.byref(value))
    return value.value if code == 0 else Absent(NAMES.get(code, f"CUDA error {code}"))


def _string(function: Callable[[ctypes.Array[ctypes.c_char], int], int], size: int) -> Fact[str]:
    text = ctypes.create_string_buffer(size)
    code = function(text, size)
    return text.value.decode("utf-8", "replace") if code == 0 else Absent(NAMES.get(code, f"CUDA error {code}"))


def _mhz(value: Fact[int]) -> Fact[int]:
    return value if isinstance(value, Absent) else value // 1000


def _lower(text: Fact[str]) -> Fact[str]:
    return text if isinstance(text, Absent) else text.lower()


def _loaded_path() -> Fact[str]:
    try:
        with Path("/proc/self/maps").open() as maps:
            paths = [line.split(None, 5)[5].strip() for line in maps if "libcuda.so" in line]
    except (OSError, IndexError):
        return Absent("cannot read /proc/self/maps")
    return os.path.normpath(paths[0]) if paths else Absent("libcuda is not in /proc/self/maps")
