"""Find the processes that hold a GPU's memory: not a fault, but the first thing to know before training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpudoc.doctor.causes.live import name_of, nvml_gpus, observe, told_gpus
from gpudoc.doctor.causes.memory import RAN_OUT
from gpudoc.doctor.causes.per_gpu import read, skip_of
from gpudoc.doctor.causes.sign import origin_of, quote, text_finder, words
from gpudoc.doctor.model import Card, Evidence, Finder, Finding, Observation, Remedy, Severity, Skip
from gpudoc.doctor.remedies import do
from gpudoc.facts.model import Absent, Fact, Gpu, GpuProcess, known_or
from gpudoc.facts.readers.model import CleanText
from gpudoc.patterns import Pattern
from gpudoc.shell import is_name
from gpudoc.units import GIB, format_bytes, format_seconds

_HELD = "oom_other_process"
# a card above _FULL leaves little for training; one above _HALF is worth a note
_FULL, _HALF = 0.9, 0.5
# the memory that a driver keeps for itself and a screen takes
_OWN_USE_BYTES = 1.5 * GIB
_MOST_REMEDIES = 4
_ENDED_BY = {"slurm": "scancel", "docker": "docker stop", "podman": "podman stop"}
_ABOUT_MEMORY = words(
    r"\bmemory\b[^.\n]{0,40}\b(?:full|held|occupied|taken|used|allocated|releas\w*|free\w*|leak\w*)\b|\boom\b"
)
# a table of processes with no row between its head and its end, or with a row that says so
_NO_ROWS = Pattern(
    r"No running processes found|Process name[^\n]*\n(?:[^\n]*Usage[^\n]*\n)?(?:[^\n\w=]*={5}[^\n\w]*\n)?"
    r"[^\n\w+-]*[-+]{5}"
)


def share_used(gpu: Gpu) -> Fact[float]:
    """The share of the card's memory that is not free."""
    total, free, used = gpu.memory_total_bytes, gpu.memory_free_bytes, gpu.memory_used_bytes
    if isinstance(total, Absent) or total <= 0:
        return Absent("the card's memory size is not known")
    if not isinstance(free, Absent):
        return 1 - free / total
    return used if isinstance(used, Absent) else used / total


def is_full(gpu: Gpu) -> bool:
    """Whether less than a tenth of the card is free."""
    return known_or(share_used(gpu), 0.0) > _FULL


def holders_of(gpu: Gpu) -> tuple[GpuProcess, ...]:
    """The processes on the card that are not known to be gone, the largest first."""
    alive = [process for process in known_or(gpu.processes, ()) if process.alive is not False]
    return tuple(sorted(alive, key=lambda process: -known_or(process.memory_bytes, 0)))


def describe_holder(process: GpuProcess) -> str:
    """'ann's python train.py (pid 4711, for 3 h 05 min, slurm 88) holds 71.2 GiB', with the parts that are known."""
    what = known_or(process.command, "") or known_or(process.name, "") or "a process"
    user = known_or(process.user, "")
    beside = [f"pid {process.pid}"]
    if not isinstance(process.age_s, Absent):
        beside.append(f"for {format_seconds(process.age_s)}")
    beside += [number_of(known) for known in (process.job, process.container) if not isinstance(known, Absent)]
    held = "" if isinstance(process.memory_bytes, Absent) else f" holds {format_bytes(process.memory_bytes)}"
    return (f"{user}'s " if user else "") + f"{what} ({', '.join(beside)}){held}"


def number_of(place: str) -> str:
    """A container or job by its kind and number, without the name that a user gave it."""
    return place.partition(" (")[0]


def _seen(gpu: Gpu, origin: str) -> Observation:
    room, total = 1 - known_or(share_used(gpu), 0.0), known_or(gpu.memory_total_bytes, 0)
    free = f"{format_bytes(room * total)} of {format_bytes(total)} free"
    holders = holders_of(gpu)
    who = "; ".join(describe_holder(process) for process in holders[:2]) or "no process is shown"
    more = f"; {len(holders) - 2} more" if len(holders) > 2 else ""
    return observe(name_of(gpu), f"{free}; {who}{more}", origin)


def end_of(process: GpuProcess) -> str:
    """The command that gently ends a process of the caller; '' for another user's process."""
    if process.own is not True:
        return ""
    job, container = known_or(process.job, ""), known_or(process.container, "")
    kind, _, number = (job if job.startswith("slurm ") else container).partition(" ")
    number = number.split(" (")[0]
    if kind in _ENDED_BY and is_name(number):
        return f"{_ENDED_BY[kind]} {number}"
    return f"kill -TERM {int(process.pid)}"


def remedies(gpus: Sequence[Gpu], full: Sequence[Gpu]) -> tuple[Remedy, ...]:
    """Steps to end the caller's own work, to ask the owners of the rest, and to use a card that is free."""
    steps: dict[str, Remedy] = {}
    asked: dict[str, list[int]] = {}
    for gpu in full:
        for process in holders_of(gpu):
            if command := end_of(process):
                step = do("End it if you no longer need it, as it is yours; it may save its state first.", command)
                steps.setdefault(command, step)
            else:
                asked.setdefault(known_or(process.user, "") or "its owner", []).append(gpu.index)
    about = {user: f"GPU {', '.join(map(str, sorted(set(indices))))}" for user, indices in asked.items()}
    ask = [do(f"Ask {user} about {of}; do not end somebody else's work yourself.") for user, of in about.items()]
    free = next((gpu for gpu in gpus if known_or(share_used(gpu), 1.0) < _HALF), None)
    other = "" if free is None else f"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={free.index} python train.py"
    take = () if free is None else (do(f"Use GPU {free.index} instead, which has free memory.", other),)
    look = do("See which processes have the device open.", "sudo fuser -v /dev/nvidia*")
    hidden = () if steps or asked else (look,)
    return (*list(steps.values())[:_MOST_REMEDIES], *ask[:2], *hidden, *take)


class _Room(NamedTuple):
    memory_total_bytes: int
    memory_free_bytes: int
    processes: tuple[GpuProcess, ...]


def find_held(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Cards that other programs fill or hold half of; a full card is a warning."""
    rooms = [(gpu, read(gpu, _Room)) for gpu in nvml_gpus(evidence.machine)]
    yield from skip_of((room.reason, gpu.index) for gpu, room in rooms if isinstance(room, Absent))
    if not rooms:
        yield Skip("NVML lists no GPU")
    gpus = tuple(gpu for gpu in nvml_gpus(evidence.machine) if known_or(gpu.nvml_code, 0) == 0)
    held = [gpu for gpu in gpus if is_full(gpu) and _taken(gpu)]
    severity: Severity = "warning" if held else "info"
    held = held or [gpu for gpu in gpus if known_or(share_used(gpu), 0.0) > _HALF and holders_of(gpu)]
    if held:
        count = f"{len(held)} of {len(gpus)} GPUs" if len(gpus) > 1 else "The GPU"
        state, sure = ("full", 0.9) if severity == "warning" else ("in use", 0.7)
        yield Finding(
            id=_HELD,
            severity=severity,
            confidence=sure,
            title=f"{count} {'is' if len(held) == 1 else 'are'} {state}",
            evidence=tuple(_seen(gpu, "NVML") for gpu in held),
            cards=tuple(map(Card.of, held)),
            fix=remedies(gpus, held),
        )


def _taken(gpu: Gpu) -> bool:
    """Whether the memory is taken: by a listed process or, if none is listed, beyond a driver's own use."""
    dead = any(process.alive is False for process in known_or(gpu.processes, ()))
    total = known_or(gpu.memory_total_bytes, 0)
    return bool(holders_of(gpu)) or (not dead and known_or(share_used(gpu), 0.0) * total > _OWN_USE_BYTES)


def _find_pasted(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A pasted table with full cards and without an error: the question is which processes hold them."""
    kinds = evidence.reading.recognised if evidence.reading is not None else ()
    gpus = told_gpus(evidence)
    full = [gpu for gpu in gpus if is_full(gpu) and not isinstance(gpu.processes, Absent)]
    if full and not {"traceback", "error", "training_log"} & set(kinds):
        title = f"{len(full)} of {len(gpus)} GPUs {'is' if len(full) == 1 else 'are'} full"
        cards = tuple(Card(index=gpu.index, pci_address=gpu.pci_address, uuid=gpu.uuid) for gpu in full)
        seen = tuple(_seen_in_text(gpu, evidence) for gpu in full)
        yield Finding(id=_HELD, severity="warning", confidence=0.8, title=title, evidence=seen, cards=cards)


def _seen_in_text(gpu: Gpu, evidence: Evidence) -> Observation:
    seen = _seen(gpu, origin_of(evidence, f"gpus.{gpu.index}.processes"))
    return observe(seen.fact, f"GPU {gpu.index}: {seen.whole or seen.value}", seen.origin)


def _find_unowned(text: CleanText, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A table in which an idle card's memory is taken and no process is listed: the table does not show the holder."""
    ran_out, empty = text.find(RAN_OUT), text.find(_NO_ROWS)
    said, shown = ran_out or text.find(_ABOUT_MEMORY), empty is None
    for gpu in known_or(evidence.machine.gpus, ()):
        used, processes = known_or(gpu.memory_used_bytes, 0), gpu.processes
        owned = shown if isinstance(processes, Absent) else bool(processes)
        # a full card counts even without a complaint
        seen = said or (empty if is_full(gpu) else None)
        if used > _OWN_USE_BYTES and gpu.utilization_percent == 0 and not owned and seen is not None:
            severity: Severity = "broken" if ran_out else "warning"
            use = observe(f"GPU {gpu.index}", f"{format_bytes(used)} in use at 0 %, no process listed", "nvidia-smi")
            yield Finding(id=_HELD, confidence=0.86, severity=severity, evidence=(use, quote(seen, "memory")))
            return


FINDERS: tuple[Finder, ...] = (
    Finder(id=_HELD, find=find_held, needs=("gpus",)),
    Finder(id=_HELD, find=_find_pasted, reads="text"),
    text_finder(_HELD, _find_unowned),
)
