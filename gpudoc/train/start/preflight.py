"""Stage 0: chooses the device, and checks with doctor for anything that would break the training."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from gpudoc.doctor.device import choose
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence, Expectation, Finding
from gpudoc.doctor.sharing import require_alone
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts import collect
from gpudoc.facts.container import ROOT
from gpudoc.facts.files import read_text
from gpudoc.facts.identify import gpu_at
from gpudoc.facts.model import Absent, KernelCheck, Machine
from gpudoc.facts.readers import snapshot
from gpudoc.train.document import StageRow
from gpudoc.train.events import Said
from gpudoc.train.ranks.meeting import Met, explained
from gpudoc.train.ranks.protocol import Ranks
from gpudoc.train.start.room import is_taken, no_room
from gpudoc.workload.build import Workload

_MOST_SAID = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """The device of this process, the messages about it, the finished stage of the summary, and the machine."""

    device: str
    said: tuple[Said, ...]
    stages: tuple[StageRow, ...]
    machine: Machine = field(default_factory=Machine)


def check_device(
    asked: str,
    *,
    check: bool,
    met: Met | None = None,
    shared: bool = False,
    collect_facts: Callable[[], Machine] | None = None,
) -> Flight:
    """The device for --device; GpudocError (exit 1) with cause and fix if it, or something it needs, is broken.

    If several processes have `met`, each takes the GPU of its number, or the only one that it sees. Without
    `check` only torch is asked; doctor's findings and other users' work on the GPU do not count then. With `shared`
    that work is only reported. Nothing is put on a GPU; `open_device` does that.
    """
    began = time.perf_counter()
    machine = with_torch(Machine() if not check else (collect_facts or partial(collect_once, met))())
    choice = choose(asked, machine).required()
    if choice.device == "cuda" and met is not None:
        choice = choose(_gpu_of(met, asked, machine), machine).required()
    said = [Said(f"trains on {choice.why}")]
    if check:
        expectation = Expectation(device=choice.device)
        report = diagnose(Evidence(source="machine", machine=machine, expectation=expectation))
        here = {choice.index, *range(met.place.local_world if met is not None and _see_the_same(met) else 0)}
        broken = [finding for finding in report.findings if finding.severity == "broken"]
        ours = [finding for finding in broken if _concerns(finding, machine, here)]
        if choice.device == "cuda":
            _stop_at(ours)
            others = require_alone(machine, sorted(here), shared=shared)
            said += [Said(f"{others}; this run shares memory and speed with them", warning=True)] * bool(others)
        warnings = [f for f in report.findings if f.severity == "warning" or (f in broken and f not in ours)]
        said += [Said(f"doctor: {finding.title}{_way_out(finding)}", warning=True) for finding in warnings[:_MOST_SAID]]
    stage: StageRow = {
        "name": "doctor",
        "status": "done" if check else "skipped",
        "seconds": round(time.perf_counter() - began, 3),
        "device": choice.name,
        "memory_peak_bytes": None,
    }
    return Flight(device=choice.name, said=tuple(said), stages=(stage,), machine=machine)


def with_torch(machine: Machine) -> Machine:
    """The machine with the facts from this process's own torch, which a quick look at files cannot know."""
    available = torch.cuda.is_available()
    count = torch.cuda.device_count() if available else 0
    return replace(
        machine, torch=replace(machine.torch, version=torch.__version__, is_available=available, device_count=count)
    )


def open_device(flight: Flight, ranks: Ranks, workload: Workload) -> None:
    """Create this process's only context on its own GPU, and try a tiny kernel: it fails if the wheel lacks code.

    GpudocError on every rank if the GPU of any rank is full, taken or broken.
    """
    device = torch.device(flight.device)
    if device.type != "cuda":
        return
    problem: GpudocError | None = None
    try:
        # "cuda" in the user's code means this GPU
        torch.cuda.set_device(device)
        ran = int((torch.ones(8, device=device) * 2).sum().item()) == 16
        if not ran:
            problem = _failed(flight, device, "a kernel gave wrong numbers")
    except RuntimeError as caught:
        if is_taken(caught):
            problem = no_room(device, workload, collect_quickly)
        else:
            problem = _failed(flight, device, str(caught).splitlines()[0])
    agree(ranks, problem)


def agree(ranks: Ranks, problem: GpudocError | None) -> None:
    """Raise on every rank the error of the first rank that has one."""
    told = None if problem is None else (problem.message, problem.hint, int(problem.exit_code))
    for first in ranks.gather(told):
        if first is not None:
            raise GpudocError(first[0], hint=first[1], exit_code=ExitCode(first[2]))


def _failed(flight: Flight, device: torch.device, error: str) -> GpudocError:
    checks = (KernelCheck(device=device.index, ran=False, error=error),)
    machine = replace(flight.machine, torch=replace(flight.machine.torch, kernel_checks=checks))
    try:
        choose(flight.device, machine).required()
    except GpudocError as problem:
        return problem
    return GpudocError(f"a kernel on {device} failed: {error}", hint="gpudoc doctor", exit_code=ExitCode.BAD_ANSWER)


def _see_the_same(met: Met) -> bool:
    """Whether every process of this machine sees all GPUs or none, rather than only its own."""
    return torch.cuda.device_count() == 0 or torch.cuda.device_count() >= met.place.local_world


def _gpu_of(met: Met, asked: str, machine: Machine) -> str:
    """The GPU of one of several processes; GpudocError if --device names one, or there are fewer than processes."""
    place = met.place
    if ":" in asked:
        raise GpudocError(f"{place.world} processes and --device {asked} contradict each other", hint="--device cuda")
    count = machine.torch.device_count
    if count == 1 < place.local_world and _has_its_own(met):
        return "cuda:0"
    if not isinstance(count, Absent) and place.local_rank >= count:
        raise GpudocError(
            f"process {place.local_rank + 1} of this machine has no GPU: torch sees {count}",
            hint=f"--nproc-per-node={count} for torchrun; under SLURM --gpus-per-node, so that each process sees all",
        )
    return f"cuda:{place.local_rank}"


def _has_its_own(met: Met) -> bool:
    """Whether each process of this machine sees a single, different GPU, as with `srun --gpus-per-task=1`."""
    mine = f"{getattr(torch.cuda.get_device_properties(0), 'uuid', '')} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}"
    with explained(met.place):
        met.store.set(f"gpu/{_node()}/{met.place.local_rank}", mine)
        seen = [met.store.get(f"gpu/{_node()}/{other}") for other in range(met.place.local_world)]
    return len(set(seen)) == len(seen)


def _node() -> str:
    """A name for this machine that no other machine has: two nodes may have the same host name."""
    start = read_text(ROOT, "proc/sys/kernel/random/boot_id")
    return socket.gethostname() if isinstance(start, Absent) else start.strip()


def _concerns(finding: Finding, machine: Machine, indices: Iterable[int]) -> bool:
    """Whether a finding concerns the GPUs that this training uses, or no particular GPU."""
    used = [gpu_at(index, machine) for index in indices]
    known = {gpu.index for gpu in used if gpu is not None}
    cards = {card.index for card in finding.cards if not isinstance(card.index, Absent)}
    return not known or len(cards) < len(finding.cards) or not cards or bool(cards & known)


def collect_quickly() -> Machine:
    """The machine's facts from a quick look, without a context on any GPU."""
    return collect(quick=True, python=Path(sys.executable))


def collect_once(met: Met | None) -> Machine:
    """The machine's facts from a quick look; one process of each machine looks for all that see the same GPUs.

    Without persistence mode the driver must start its GPUs first, and answers eight processes even later than one.
    """
    if met is None:
        return collect_quickly()
    key = f"machine/{_node()}"
    if met.place.local_rank == 0:
        try:
            machine = collect_quickly()
        except GpudocError:
            met.store.set(key, "{}")
            raise
        met.store.set(key, json.dumps(snapshot.dump(machine)))
        return machine
    if not _see_the_same(met):
        return collect_quickly()
    with explained(met.place):
        facts = json.loads(met.store.get(key))
    return snapshot.load(facts) if facts else collect_quickly()


def _stop_at(broken: list[Finding]) -> None:
    if not broken:
        return
    first = broken[0]
    fix = next((remedy.run or remedy.say for remedy in first.fix), "gpudoc doctor")
    raise GpudocError(
        f"doctor says: {first.title}. {first.why}",
        hint=f"{fix}; to skip this check: --no-preflight",
        exit_code=ExitCode.BAD_ANSWER,
    )


def _way_out(finding: Finding) -> str:
    fix = next((remedy.run or remedy.say for remedy in finding.fix), "")
    return f"; {fix}" if fix else ""
