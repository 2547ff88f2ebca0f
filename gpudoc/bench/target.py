"""What is measured: the machine's facts and the device, with torch asked only when a GPU makes that necessary."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from gpudoc.doctor.device import Choice, choose, has_gpu
from gpudoc.facts import collect
from gpudoc.facts.model import Machine


@dataclass(frozen=True, slots=True)
class Target:
    """The machine as collected, and the device chosen on it."""

    machine: Machine
    choice: Choice


def find_target(device: str) -> Target:
    """The device for `--device`; GpudocError (exit 2) for a name that is none.

    The torch that is examined is the one that measures: that of this Python. A machine without a GPU spares its import.
    """
    python = Path(sys.executable)
    machine = collect(quick=True, python=python)
    if device != "cpu" and has_gpu(machine):
        machine = collect(python=python)
    return Target(machine, choose(device, machine))
