"""Stage 0: which device, and whether doctor finds anything that would break it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from gpudoc.doctor.device import choose
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence, Expectation, Finding
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts import collect
from gpudoc.facts.model import KernelCheck, Machine
from gpudoc.train.events import Said

_MOST_SAID = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """The device to train on, what is said about it, and the finished stage of the summary."""

    device: str
    said: tuple[Said, ...]
    stages: tuple[dict[str, object], ...]


def check_device(asked: str, *, check: bool, collect_facts: Callable[[], Machine] | None = None) -> Flight:
    """The device for --device; GpudocError (exit 1) with cause and fix when it, or what it stands on, is broken.

    Without `check` only torch is asked; doctor's findings do not count then.
    """
    began = time.perf_counter()
    machine = with_torch(Machine() if not check else (collect_facts or _collect)())
    choice = choose(asked, machine).required()
    said = [Said(f"trains on {choice.why}")]
    if check:
        expectation = Expectation(device=choice.device)
        report = diagnose(Evidence(source="machine", machine=machine, expectation=expectation))
        if choice.device == "cuda":
            _stop_at([finding for finding in report.findings if finding.severity == "broken"])
        warnings = [finding for finding in report.findings if finding.severity == "warning"]
        said += [Said(f"doctor: {finding.title}{_way_out(finding)}", warning=True) for finding in warnings[:_MOST_SAID]]
    stage: dict[str, object] = {
        "name": "doctor",
        "status": "done" if check else "skipped",
        "seconds": round(time.perf_counter() - began, 3),
        "device": choice.name,
        "memory_peak_bytes": None,
    }
    return Flight(device=choice.name, said=tuple(said), stages=(stage,))


def with_torch(machine: Machine) -> Machine:
    """The machine with what the torch of this very process says, which a quick look at files cannot know."""
    available = torch.cuda.is_available()
    count = torch.cuda.device_count() if available else 0
    build = replace(machine.torch, version=torch.__version__, is_available=available, device_count=count)
    if available:
        build = replace(build, kernel_checks=tuple(_try_kernel(index) for index in range(count)))
    return replace(machine, torch=build)


def _collect() -> Machine:
    return collect(quick=True, python=Path(sys.executable))


def _try_kernel(index: int) -> KernelCheck:
    """Whether a tiny kernel runs: a wheel without this GPU's architecture is found only so."""
    try:
        ran = int((torch.ones(8, device=f"cuda:{index}") * 2).sum().item()) == 16
    except RuntimeError as problem:
        return KernelCheck(device=index, ran=False, error=str(problem).splitlines()[0])
    return KernelCheck(device=index, ran=ran)


def _stop_at(broken: list[Finding]) -> None:
    if not broken:
        return
    first = broken[0]
    fix = next((remedy.run or remedy.say for remedy in first.fix), "gpudoc doctor")
    raise GpudocError(
        f"doctor says: {first.title}. {first.why}",
        hint=f"{fix}; or go on as it is: --no-preflight",
        exit_code=ExitCode.BAD_ANSWER,
    )


def _way_out(finding: Finding) -> str:
    fix = next((remedy.run or remedy.say for remedy in finding.fix), "")
    return f"; {fix}" if fix else ""
