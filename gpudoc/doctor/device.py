"""Choose the device of a command, with the reason: the one decision that bench, tune and train share."""

from __future__ import annotations

from typing import Literal

from gpudoc.doctor.causes.live import is_jetson, nvml_gpus, pci_gpus, variables
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence, Expectation, Finding, Observation, Setting
from gpudoc.doctor.registry import CATALOGUE, fill
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.identify import gpu_at
from gpudoc.facts.model import Absent, Machine, known_or
from gpudoc.facts.topology import AMD, NVIDIA
from gpudoc.frozen import dataclass
from gpudoc.patterns import Pattern
from gpudoc.units import format_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The device to use and one sentence why; `problem` is set if a wanted GPU cannot be used."""

    device: Literal["cpu", "cuda"]
    why: str
    index: int = 0
    problem: Finding | None = None

    @property
    def name(self) -> str:
        """The device as torch spells it: 'cpu', 'cuda:0'."""
        return "cpu" if self.device == "cpu" else f"cuda:{self.index}"

    def required(self) -> Choice:
        """This choice if nothing is wrong; else GpudocError (exit 1) with cause, fix and `--device cpu`."""
        if self.problem is None:
            return self
        fix = next((r.run or r.say for r in self.problem.fix), "")
        way_round = "or use the CPU: --device cpu"
        hint = f"{fix}; {way_round}" if fix else f"gpudoc doctor; {way_round}"
        raise GpudocError(self.why, hint=hint, exit_code=ExitCode.BAD_ANSWER)


def choose(device: str, machine: Machine) -> Choice:
    """The device for `--device` (auto, cpu, cuda, cuda:N) on this machine; GpudocError (exit 2) for another name.

    bench uses the choice as it is and prints `why`; tune and train call `required()` on it.
    """
    match = Pattern(r"(auto|cpu|cuda)(?::(\d+))?").fullmatch(device.strip().lower())
    if match is None or (match[2] and match[1] != "cuda"):
        raise GpudocError(f"no such device: {device!r}", hint="--device auto, cpu, cuda or cuda:0")
    if match[1] == "cpu":
        return Choice(device="cpu", why="the CPU, as requested")
    asked = match[1] == "cuda"
    index = int(match[2] or 0)
    if not asked and variables(machine).get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return Choice(device="cpu", why="the CPU: CUDA_VISIBLE_DEVICES hides every GPU on purpose")
    if not asked and not has_gpu(machine):
        return Choice(device="cpu", why="the CPU: this machine has no GPU")
    problem = _problem(machine, index, asked)
    if problem is None:
        return Choice(device="cuda", index=index, why=f"the GPU: {_gpu_name(machine, index)}")
    said = f"the GPU cannot be used: {problem.title}"
    return Choice(device="cpu", why=said, problem=problem)


def has_gpu(machine: Machine) -> bool:
    """Whether the machine has a GPU that torch could use, working or not: on the bus, known to NVML, or to torch."""
    # a Jetson's GPU is not on a bus, and older Jetsons have no NVML
    if nvml_gpus(machine) or known_or(machine.torch.device_count, 0) > 0 or is_jetson(machine):
        return True
    vendors = (NVIDIA, AMD) if machine.torch.accelerator == "rocm" else (NVIDIA,)
    return any(pci_gpus(machine, vendor) for vendor in vendors)


def _problem(machine: Machine, index: int, asked: bool) -> Finding | None:
    torch = machine.torch
    failed = next((c for c in known_or(torch.kernel_checks, ()) if c.device == index and not c.ran and c.error), None)
    count = torch.device_count
    if torch.is_available is True and failed is None:
        if isinstance(count, Absent) or index < count:
            return None
        return _own_finding(
            f"cuda:{index} was requested, but torch sees {format_count(count, 'GPU')}", str(count), "device_count"
        )
    if isinstance(torch.is_available, Absent) and torch.accelerator in ("cuda", "rocm") and has_gpu(machine):
        return None
    expectation = Expectation(device="cuda" if asked else "auto", num_gpus=index + 1 if asked else None)
    report = diagnose(Evidence(source="machine", machine=machine, expectation=expectation))
    found = next((f for f in report.findings if f.severity == "broken"), None)
    if found is not None:
        return found
    if failed is not None:
        return _own_finding(f"a kernel on cuda:{index} failed: {failed.error}", failed.error, "kernel_checks")
    return _own_finding("torch.cuda.is_available() is False", str(torch.is_available), "is_available")


def _own_finding(title: str, value: str, fact: str) -> Finding:
    seen = (Observation(f"torch.{fact}", value, "torch"),)
    return fill(Finding(id="gpu_unusable", confidence=0.9, title=title, evidence=seen), CATALOGUE, Setting())


def _gpu_name(machine: Machine, index: int) -> str:
    gpu = gpu_at(index, machine)
    return f"cuda:{index}" if gpu is None or isinstance(gpu.name, Absent) else gpu.name
