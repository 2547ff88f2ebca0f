"""What a text says of how things are: GPUs, torch and losses as they stand in it, in a line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoc.doctor.model import Observation
from gpudoc.facts.model import Absent, Fact, Gpu
from gpudoc.facts.readers.model import Reading
from gpudoc.units import format_bytes

_MOST_GPUS = 4


def condition(reading: Reading) -> tuple[Observation, ...]:
    """One observation for each thing whose state a text gives; empty when it gives none."""
    machine = reading.machine
    seen = list(_gpus(() if isinstance(machine.gpus, Absent) else machine.gpus))
    if machine.torch.is_available is True:
        version = machine.torch.version
        seen.append(Observation("torch", f"torch {'' if isinstance(version, Absent) else f'{version} '}sees a GPU", ""))
    return tuple(seen)


def _gpus(gpus: Sequence[Gpu]) -> Iterator[Observation]:
    known = [gpu for gpu in gpus if not isinstance(gpu.utilization_percent, Absent) or _memory([gpu])]
    if len(known) <= _MOST_GPUS:
        for gpu in known:
            yield Observation("gpu", f"GPU {gpu.index} {_state([gpu])}", "")
    else:
        yield Observation("gpu", f"{len(known)} GPUs {_state(known)}", "")


def _state(gpus: Sequence[Gpu]) -> str:
    busy = [gpu.utilization_percent for gpu in gpus]
    parts = [f"{_range(busy)} % busy"] if _range(busy) else []
    return ", ".join([*parts, *([memory] if (memory := _memory(gpus)) else [])])


def _memory(gpus: Sequence[Gpu]) -> str:
    totals = {gpu.memory_total_bytes for gpu in gpus}
    used = [gpu.memory_used_bytes for gpu in gpus if not isinstance(gpu.memory_used_bytes, Absent)]
    total = totals.pop()
    if totals or isinstance(total, Absent) or not total or not used:
        return ""
    least, most = format_bytes(min(used)), format_bytes(max(used))
    return f"{least if least == most else f'{least} to {most}'} of {format_bytes(total)} used"


def _range(values: Sequence[Fact[int]]) -> str:
    known = [value for value in values if not isinstance(value, Absent)]
    if not known:
        return ""
    return f"{min(known)}" if min(known) == max(known) else f"{min(known)} to {max(known)}"
