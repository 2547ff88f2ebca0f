"""Describes this machine and this workload as profiles do, for tune to write and train to look up."""

from __future__ import annotations

import hashlib
import os

import torch
from torch import nn

from gpudoc.facts.host import memory_usable_bytes, num_cpus
from gpudoc.facts.model import Absent
from gpudoc.profile.model import Hardware, WorkloadKey
from gpudoc.train.data.stream import first_batch
from gpudoc.train.ranks.protocol import inside
from gpudoc.units import GIB
from gpudoc.workload.batch import Batch, tensors_in
from gpudoc.workload.build import Workload, data_fingerprint, model_fingerprint

# variables that keep torch's libraries and glibc from using CPU instructions: kernels and scratch memory differ
_SWITCHES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "GLIBC_TUNABLES")


def hardware_here(device: torch.device, limit_bytes: int | None = None, count: int = 1) -> Hardware:
    """This kind of machine in a profile's terms; memory is the card's or, on a CPU, the host's or the given limit."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return Hardware(
            device="cuda",
            name=properties.name,
            capability=(properties.major, properties.minor),
            memory_bytes=min(properties.total_memory, limit_bytes or properties.total_memory),
            count=count,
            torch=torch.__version__,
            cuda=torch.version.cuda or torch.version.hip,
            cpu_cores=float(num_cpus()),
            ram_bytes=_ram_bytes(),
            shm_bytes=_shm_bytes(),
        )
    return Hardware(
        device="cpu",
        name=_cpu_name(),
        memory_bytes=limit_bytes or _ram_bytes(),
        count=count,
        torch=torch.__version__,
        cpu_cores=float(num_cpus()),
        ram_bytes=_ram_bytes(),
        shm_bytes=_shm_bytes(),
        instructions=_instructions(),
    )


def workload_key(workload: Workload, model: nn.Module) -> WorkloadKey:
    """The workload in a profile's terms: fingerprints of model and data, the optimizer, a sample's shapes."""
    return WorkloadKey(
        config=workload.name,
        model=f"{model_fingerprint(model)}-{workload.signature()}",
        data=data_fingerprint(workload.dataset),
        optimizer=workload.config.optimizer.target,
        inputs=input_signature(workload),
        global_batch=None if workload.config.train.global_batch == "auto" else workload.config.train.global_batch,
    )


def input_signature(workload: Workload) -> str:
    """Shapes and types of one collated sample without the batch dimension, for example 'int64[128], int64[128]'."""
    batch: Batch = first_batch(workload, workload.config.train.seed)
    return ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape[1:])}" for t in tensors_in(batch))


def digest(tensors: object) -> str:
    """sha256 over nested tensors and plain values in a fixed order, as hex; equal exactly if all bits are equal."""
    found = hashlib.sha256()
    _feed(found, tensors)
    return found.hexdigest()


def _feed(found: hashlib._Hash, value: object) -> None:
    if isinstance(value, torch.Tensor) and (inner := inside(value)):
        _feed(found, inner)
    elif isinstance(value, torch.Tensor):
        found.update(f"{value.dtype}{tuple(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            found.update(str(key).encode())
            _feed(found, value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            _feed(found, item)
    else:
        found.update(repr(value).encode())


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:  # noqa: PTH123
            row = next((line for line in stream if line.startswith("model name")), "")
    except OSError:
        return ""
    return row.partition(":")[2].strip()


def _instructions() -> str:
    """'AVX512', or 'AVX2 ONEDNN_MAX_CPU_ISA=AVX2' under a switch."""
    used = str(torch.backends.cpu.get_cpu_capability())
    return " ".join([used, *(f"{name}={os.environ[name]}" for name in _SWITCHES if os.environ.get(name))])


def _ram_bytes() -> int | None:
    usable = memory_usable_bytes()
    return None if isinstance(usable, Absent) else usable


def _shm_bytes() -> int | None:
    try:
        space = os.statvfs("/dev/shm")
    except (OSError, AttributeError):
        return None
    # whole GiB, since the exact size is irrelevant and differs from boot to boot
    return space.f_blocks * space.f_frsize // GIB * GIB
