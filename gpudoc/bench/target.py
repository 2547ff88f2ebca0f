"""What is measured: the machine's facts and the device, with torch asked only when a GPU makes that necessary."""

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
        """One line: what is measured and why, and what the GPU lacks when the CPU stands in for it."""
        problem = self.choice.problem
        if problem is None:
            return f"measuring {self.choice.why}"
        fix = next((remedy.run or remedy.say for remedy in problem.fix), "gpudoc doctor")
        return f"measuring the CPU, because {self.choice.why}\n  try: {fix}"


def find_target(device: str) -> BenchTarget:
    """The device for `--device`; GpudocError for a name that is none (exit 2) or a GPU asked for in vain (exit 1).

    With 'auto' the CPU stands in for a GPU that cannot be used. The torch that is examined is the one that measures:
    that of this Python. A machine without a GPU spares its import.
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
    """What is said before the first figure: who else computes on the GPU, and how long it takes at most.

    GpudocError (exit 1) when others compute there and `shared` was not given. Who computes on further GPUs is said.
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
