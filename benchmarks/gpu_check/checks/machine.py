"""What this machine is, which torch gpudoc's tables choose for it, and its clocks and link under load."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping

import torch

from benchmarks.gpu_check import wheel
from benchmarks.gpu_check.model import Comparison, Result
from gpudoc import facts
from gpudoc.doctor.model import Evidence
from gpudoc.doctor.setting import describe
from gpudoc.facts.gpu_counters import GpuCounters, open_counters
from gpudoc.facts.model import Absent, Machine, fact_at
from gpudoc.units import MIB

LOAD_S = 2.0
# what each fact is called in the record, and where gpudoc keeps it
OF_MACHINE = {
    "driver": "driver.nvml_driver_version",
    "driver_cuda": "driver.cuda_version",
    "open_kernel_module": "driver.open_kernel_module",
    "kernel": "host.kernel",
    "distribution": "host.distribution",
    "architecture": "host.architecture",
    "wsl": "host.wsl",
    "jetson": "host.jetson",
    "cpu": "host.cpu_model",
    "shm_bytes": "host.shm_total_bytes",
    "locked_memory_limit_bytes": "host.locked_memory_limit_bytes",
    "container": "container.kind",
    "scheduler": "container.scheduler",
}
OF_GPU = (
    "name", "capability", "memory_total_bytes", "persistence", "ecc_enabled", "power_limit_w", "power_limit_default_w",
    "compute_mode", "mig_enabled", "mig_instances", "display_attached", "virtualization", "sm_clock_max_mhz",
    "link.generation", "link.generation_max", "link.width", "link.width_max",
)  # fmt: skip


def told(value: object) -> str | float:
    """A fact as the record holds it; an absent one says why."""
    match value:
        case Absent(reason):
            return f"not known: {reason}"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return value
        case tuple():
            return ".".join(map(str, value))
        case _:
            return str(value)


def describe_machine(machine: Machine) -> dict[str, str | float]:
    """Every fact of the record by its name; those of the GPUs begin with `gpu0.`."""
    found = {name: told(fact_at(machine, path)) for name, path in OF_MACHINE.items()}
    gpus = () if isinstance(machine.gpus, Absent) else machine.gpus
    found["gpus"] = len(gpus)
    for gpu in gpus:
        found |= {f"gpu{gpu.index}.{path}": told(fact_at(gpu, path)) for path in OF_GPU if _has(gpu, path)}
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), "not found")
    return {**found, "compiler": compiler, "torch": torch.__version__, "torch_cuda": str(torch.version.cuda)}


def _has(gpu: object, path: str) -> bool:
    return hasattr(gpu, path.split(".", maxsplit=1)[0])


def load(read: Callable[[], GpuCounters], device: torch.device) -> Mapping[str, float]:
    """The highest clock and the widest link that the counters showed while the GPU worked and copied for two seconds.

    The work is additions: products would take a card to its power limit, where it rightly lowers its clocks.
    """
    block = torch.zeros(64 * MIB, device=device)
    host = torch.zeros(16 * MIB, dtype=torch.uint8, pin_memory=True)
    there = torch.empty_like(host, device=device)
    seen: dict[str, float] = {}
    until = time.monotonic() + LOAD_S
    while time.monotonic() < until:
        for _ in range(20):
            block.add_(1.0)
            there.copy_(host, non_blocking=True)
        now = read()
        for name in ("sm_clock_mhz", "link_generation", "link_width"):
            value = getattr(now, name)
            if not isinstance(value, Absent):
                seen[name] = max(seen.get(name, 0.0), float(value))
        reasons = () if isinstance(now.throttle_reasons, Absent) else now.throttle_reasons
        for reason in reasons:
            if reason != "gpu_idle":
                seen[f"reason {reason}"] = 1.0
        torch.cuda.synchronize(device)
    return seen


def main() -> None:
    machine = facts.collect()
    result = Result(facts=describe_machine(machine))
    choice = wheel.choose(describe(Evidence(source="machine", machine=machine)))
    result.facts["wheel"] = f"{' '.join(choice.arguments)} ({choice.reason})"
    if not choice.arguments:
        result.failures.append(choice.reason)
    gpu = machine.gpus[0] if not isinstance(machine.gpus, Absent) and machine.gpus else None
    address = Absent("NVML lists no GPU") if gpu is None else gpu.pci_address
    read = address if isinstance(address, Absent) else open_counters(address)
    if isinstance(read, Absent) or gpu is None:
        result.facts["under_load"] = told(read)
    else:
        seen = load(read, torch.device("cuda:0"))
        for name in ("link_generation", "link_width"):
            result.facts[f"gpu0.{name}_under_load"] = seen.get(name, "not known")
        if "sm_clock_mhz" in seen and not isinstance(gpu.sm_clock_max_mhz, Absent):
            reasons = ", ".join(name.removeprefix("reason ") for name in seen if name.startswith("reason "))
            result.comparisons.append(
                Comparison(
                    name=f"clock under light load{f' (slowed by: {reasons})' if reasons else ''}",
                    guessed=float(gpu.sm_clock_max_mhz), measured=seen["sm_clock_mhz"], unit="MHz", low=0.8, high=1.02,
                )
            )  # fmt: skip
    print(result.to_line())


if __name__ == "__main__":
    main()
