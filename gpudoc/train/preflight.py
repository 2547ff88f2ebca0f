"""Stage 0: which device, and whether anything is broken that would break it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from gpudoc.doctor.device import choose
from gpudoc.facts.model import Machine, TorchBuild
from gpudoc.train.events import Said


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """The device to train on, what is said about it, and the finished stages."""

    device: str
    said: tuple[Said, ...]
    stages: tuple[dict[str, object], ...]


def check_device(asked: str, *, check: bool) -> Flight:
    """The device for --device; GpudocError (exit 1) when a GPU that is there or asked for cannot be used."""
    began = time.perf_counter()
    machine = _machine()
    choice = choose(asked, machine).required()
    stage: dict[str, object] = {
        "name": "doctor",
        "status": "done" if check else "skipped",
        "seconds": round(time.perf_counter() - began, 3),
        "device": choice.name,
        "memory_peak_bytes": None,
    }
    return Flight(device=choice.device, said=(Said(f"trains on {choice.why}"),), stages=(stage,))


def _machine() -> Machine:
    available = torch.cuda.is_available()
    count = torch.cuda.device_count()
    return Machine(
        torch=TorchBuild(version=torch.__version__, is_available=available, device_count=count),
    )
