"""The target of a run: the machine's facts and the device; torch is imported only if there is a GPU."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from gpudoc.bench.environment import FULL_S, QUICK_S
from gpudoc.doctor.device import Choice, choose, has_gpu
from gpudoc.doctor.sharing import require_alone
from gpudoc.errors import GpudocError
from gpudoc.facts import collect
from gpudoc.facts.model import Machine, known
from gpudoc.units import format_seconds


@dataclass(frozen=True, slots=True)
class BenchTarget:
    """The machine as collected, and the device chosen on it."""

    machine: Machine
    choice: Choice

    @property
    def said(self) -> str:
        """One line: the measured device and the reason, and the GPU's problem if the CPU stands in for it."""
        problem = self.choice.problem
        if problem is None:
            return f"measuring {self.choice.why}"
        fix = next((remedy.run or remedy.say for remedy in problem.fix), "gpudoc doctor")
        return f"measuring the CPU, because {self.choice.why}\n  try: {fix}"


def find_target(device: str) -> BenchTarget:
    """The device for `--device`; GpudocError for an unknown name (exit 2) or a GPU that cannot be used (exit 1).

    With 'auto' the CPU stands in for a GPU that cannot be used. The examined torch is the one that measures, which is
    this Python's. It is not imported on a machine without a GPU.
    """
    if sys.platform == "win32":
        raise GpudocError(
            "bench measures only Linux and macOS, and this is Windows", hint="the same command inside WSL 2"
        )
    python = Path(sys.executable)
    machine = collect(quick=True, python=python)
    if device != "cpu" and has_gpu(machine):
        machine = collect(python=python)
    choice = choose(device, machine)
    return BenchTarget(machine, choice if device == "auto" else choice.required())


def before_measuring(target: BenchTarget, *, quick: bool, shared: bool) -> list[str]:
    """The messages before the first figure: other processes on the GPU, and the longest duration of the run.

    GpudocError (exit 1) if others compute there and `shared` was not given. Processes on further GPUs are only named.
    """
    said, machine = [], target.machine
    if target.choice.device == "cuda":
        others = require_alone(machine, [target.choice.index], shared=shared)
        rest = [n for n in range(len(known(machine.gpus) or ())) if n != target.choice.index]
        beyond = require_alone(machine, rest, shared=True)
        said += [f"! {others}; every figure is valid only while they run"] * bool(others)
        said += [f"! {beyond}; figures across several GPUs are valid only while they run"] * bool(beyond)
    lasts = f"takes about {format_seconds(QUICK_S if quick else FULL_S)}, plus what --data and several GPUs need"
    return [*said, lasts] if not quick else said
