"""How far a row can be trusted: impossible values are rejected, every other weakness is shown next to the figure."""

from __future__ import annotations

from dataclasses import replace

from gpudoc.bench.evidence import OFTEN
from gpudoc.bench.model import Doubt, Measurement, Situation
from gpudoc.facts.model import Absent, Gpu
from gpudoc.stats import median
from gpudoc.units import GIB, format_bytes, format_count

# a result above this share of its ceiling is a measurement error
IMPOSSIBLE = 1.02
WIDE = 0.10
FEW = 5
STOLEN = 0.02
BUSY_CPUS = 0.25
OTHERS_MEMORY_BYTES = 2 * GIB

# the meaning of each doubt, once for all rows
MEANINGS = {
    "impossible": "the value exceeds what the hardware can do, so the measurement is wrong and the value is not shown",
    "few_samples": "there are too few samples for the spread to mean much",
    "spread": "the range from p10 to p90 is this share of the median",
    "rounds_differ": "the medians of the separate processes differ by this much",
    "throttled": "the GPU cut its clocks for that reason for this share of the time",
    "shared_gpu": "other processes, perhaps in another container, used the GPU; measure again when they have ended",
    "cache_unknown": "the kernel did not drop the files from its cache, so a cold read looks the same as a warm one",
    "host_cache": "the host of a virtual machine may cache the files in its own memory, which is invisible from inside",
    "stolen": "the hypervisor took away this share of the CPU time; nothing inside the machine can prevent that",
    "busy_host": "other processes kept this many CPUs busy during the measurement; stop them and measure again",
}


def assess(row: Measurement, situation: Situation) -> Measurement:
    """`row` with its doubts, and without its value if that exceeds what the hardware can do."""
    doubts = (*_spread(row), *_host(row), *_card(row, situation), *_files(row, situation))
    share = row.share_of_ceiling
    if share is not None and share > IMPOSSIBLE:
        text = f"refused: {row.value:.4g} {row.unit} would be {share:.0%} of the ceiling"
        return replace(row, value=None, doubts=(Doubt("impossible", text), *doubts))
    return replace(row, doubts=doubts)


def _spread(row: Measurement) -> list[Doubt]:
    doubts = []
    count = sum(len(one) for one in row.rounds)
    if count < FEW:
        doubts.append(Doubt("few_samples", format_count(count, "sample")))
    if row.p50 > 0 and (row.p90 - row.p10) / row.p50 > WIDE:
        doubts.append(Doubt("spread", f"spread {_percent((row.p90 - row.p10) / row.p50)}"))
    medians = [median(one) for one in row.rounds]
    if len(medians) > 1 and row.p50 > 0 and (max(medians) - min(medians)) / row.p50 > WIDE:
        width = (max(medians) - min(medians)) / row.p50
        doubts.append(Doubt("rounds_differ", f"processes differ {_percent(width)}"))
    return doubts


def _card(row: Measurement, situation: Situation) -> list[Doubt]:
    doubts = []
    for name, share in row.context.items():
        if name.startswith("throttled_") and share >= OFTEN:
            reason = name.removeprefix("throttled_").removesuffix("_share").replace("_", " ")
            doubts.append(Doubt("throttled", f"throttled ({reason}) {share:.0%}"))
    if row.other_gpu_processes:
        return [*doubts, Doubt("shared_gpu", f"GPU shared with {row.other_gpu_processes}")]
    hidden = 0 if situation.gpu is None else _hidden_bytes(situation.gpu)
    if hidden > OTHERS_MEMORY_BYTES and row.device != "cpu":
        doubts.append(Doubt("shared_gpu", f"{format_bytes(hidden)} of the GPU in use before"))
    return doubts


def _hidden_bytes(gpu: Gpu) -> int:
    """Memory that no listed process accounts for: processes of other containers use memory but are not listed.

    The driver itself keeps some hundred MiB. The work of listed processes is seen while the rows are measured.
    """
    if isinstance(gpu.memory_used_bytes, Absent):
        return 0
    accounted = gpu.memory_accounted_bytes
    return gpu.memory_used_bytes - (0 if isinstance(accounted, Absent) else accounted)


def _files(row: Measurement, situation: Situation) -> list[Doubt]:
    flags = situation.machine.host.cpu_flags
    match row.parameters.get("cache"):
        case "unknown":
            share = row.context.get("resident_share", 1.0)
            return [Doubt("cache_unknown", f"{share:.0%} still in memory")]
        case "cold" if not isinstance(flags, Absent) and "hypervisor" in flags:
            return [Doubt("host_cache", "virtual machine")]
        case _:
            return []


def _percent(share: float) -> str:
    return f"{share:.0%}" if share < 2 else f"{share:.0f}-fold"


def _host(row: Measurement) -> list[Doubt]:
    doubts = []
    stolen = row.context.get("stolen_share", 0.0)
    if stolen > STOLEN:
        doubts.append(Doubt("stolen", f"{stolen:.0%} stolen"))
    others = row.context.get("other_cpus_max", 0.0)
    if others > BUSY_CPUS:
        doubts.append(Doubt("busy_host", f"{others:.1f} CPUs busy"))
    return doubts
