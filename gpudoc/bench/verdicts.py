"""Find rows below the normal share of their path, and the cause by evidence; 'cause not found' without evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from gpudoc.bench.evidence import (
    CPU_CAUSES,
    LINK_CAUSES,
    LOAD_CAUSES,
    half_rate,
    pageable_copies,
    slot_limited,
    slowed_by_soaking,
    spinning_threads,
)
from gpudoc.bench.model import Measurement, Parameter, Situation
from gpudoc.doctor.model import Evidence, Finding, Observation, Remedy
from gpudoc.doctor.registry import CATALOGUE, fill
from gpudoc.doctor.setting import describe
from gpudoc.facts.model import Absent

Cause = Callable[[Measurement, Situation], Finding | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """One path's normal share of the ceiling, below which a row is low, and the causes to look for."""

    name: str
    normal: float
    causes: tuple[Cause, ...]
    look_at: str


def find_causes(situation: Situation) -> tuple[Finding, ...]:
    """Findings, the most severe first; corrupted data is broken, a low figure a warning, a peculiarity info."""
    found = [
        *(corrupted(row) for row in situation.rows if row.corrupted),
        *(finding for row in best_rows(situation) for finding in judge_row(row, situation)),
        *peculiarities(situation),
    ]
    order = {"broken": 0, "warning": 1, "info": 2}
    merged: dict[str, Finding] = {}
    for finding in sorted(found, key=lambda one: order[one.severity]):
        known = merged.get(finding.id)
        merged[finding.id] = finding if known is None else _merge(known, finding)
    setting = describe(Evidence(source="machine", machine=situation.machine))
    return tuple(fill(finding, CATALOGUE, setting) for finding in merged.values())


def best_rows(situation: Situation) -> tuple[Measurement, ...]:
    """The row to judge for each name, type, kind of host memory and direction: the one nearest to its ceiling."""
    best: dict[tuple[str, ...], Measurement] = {}
    for row in situation.rows:
        share = row.share_of_ceiling
        if share is None:
            continue
        names = ("dtype", "host", "mode", "from", "to")
        kind = (row.name, *(str(row.parameters.get(name, "")) for name in names))
        if kind not in best or share > (best[kind].share_of_ceiling or 0.0):
            best[kind] = row
    return tuple(best.values())


def path_of(row: Measurement, situation: Situation) -> Path | None:
    """The path of `row` with its normal share; None if no normal share is known."""
    if row.device == "cpu":
        # 0.60: below every shape of every type measured on an idle machine, where the best shape reaches 0.86 and more
        return Path(name="the CPU's units", normal=0.60, causes=CPU_CAUSES, look_at=_LOOK_CPU)
    normal = normal_share(row.name, row.parameters, _generation(situation))
    if normal is None:
        return None
    match row.name:
        case "h2d" | "d2h":
            return Path(name="the host link", normal=normal, causes=LINK_CAUSES, look_at=_LOOK_LINK)
        case "matmul":
            return Path(name="the GPU's units", normal=normal, causes=LOAD_CAUSES, look_at=_LOOK_LOAD)
        case "p2p":
            return Path(name="the link between GPUs", normal=normal, causes=LOAD_CAUSES, look_at=_LOOK_PEER)
        case _:
            return Path(name="the GPU's memory", normal=normal, causes=LOAD_CAUSES, look_at=_LOOK_LOAD)


def normal_share(name: str, parameters: Mapping[str, Parameter], pcie_generation: int) -> float | None:
    """The share of its ceiling that a GPU's figure reaches if nothing is wrong; None if unknown."""
    match name:
        case "h2d" | "d2h" if parameters.get("host") == "pinned":
            # packet headers take 4 to 16 %; A100 reach 0.79 to 0.83 of Gen4, H100 0.89 to 0.91 of Gen5
            return 0.80 if pcie_generation >= 5 else 0.75
        case "device_read" | "device_copy" | "device_triad":
            return 0.75
        case "matmul":
            # H100, H200 and B200 reach 0.73 to 0.80 with tuned libraries; torch's own 8-bit products are less tuned
            return 0.50 if parameters.get("dtype") in ("fp8", "int8") else 0.65
        case "p2p" if parameters.get("direct") == "yes":
            return 0.65
        case _:
            return None


_LOOK_CPU = "Run it again on an idle machine; check OMP_NUM_THREADS and the CPU governor (cpupower frequency-info)."
_LOOK_LINK = "Check the slot (lspci -vv shows LnkSta and LnkCap), the riser, and the BIOS setting of the slot's lanes."
_LOOK_LOAD = "Look at nvidia-smi -q -d CLOCK,PERFORMANCE,POWER while gpudoc bench --only matmul runs."
_LOOK_PEER = "Check nvidia-smi topo -m and nvidia-smi nvlink --status, and whether the IOMMU is off or in pass-through."


def judge_row(row: Measurement, situation: Situation) -> Iterator[Finding]:
    """The causes of `row` if it is below its path's normal share; 'cause_not_found' without evidence for any."""
    path, share = path_of(row, situation), row.share_of_ceiling
    if path is None or share is None or share >= path.normal:
        return
    causes = [found for cause in path.causes if (found := cause(row, situation)) is not None]
    yield from (replace(cause, evidence=(_low(row, path), *cause.evidence)) for cause in causes)
    clocked = row.share_at_measured_clock
    # a cause that is not a fault explains a low row only as far as the clock does
    if any(cause.severity != "info" for cause in causes) or (causes and (clocked is None or clocked >= path.normal)):
        return
    yield Finding(
        id="cause_not_found",
        severity="warning",
        confidence=0.3,
        title=f"{_name(row)} reaches {share:.0%} of what {path.name} can do; normal is {path.normal:.0%} and more",
        evidence=(_low(row, path),),
        fix=(Remedy(say=path.look_at),),
    )


def peculiarities(situation: Situation) -> Iterator[Finding]:
    """Limits of this machine although nothing is wrong: slot, GeForce's half rate, pageable memory, other processes;
    and the result of a soak."""
    for cause in (slowed_by_soaking, slot_limited, half_rate, pageable_copies, spinning_threads):
        found = cause(situation)
        if found is not None:
            yield found


def corrupted(row: Measurement) -> Finding:
    """Wrong data after a copy or a product."""
    where = "the GPU, its memory or its slot" if row.device != "cpu" else "the CPU or its memory"
    return Finding(
        id="data_corrupted",
        severity="broken",
        confidence=0.9,
        title=f"{_name(row)} gave wrong data",
        why=f"{row.corrupted}. Training on it gives wrong results without any error; {where} is suspect.",
        evidence=(Observation(f"bench.{row.name}", row.corrupted, "verified after the run"),),
        fix=(
            Remedy(say="Run it again. If the error returns, take the device out of use and test it.", run=_retest(row)),
        ),
    )


def _retest(row: Measurement) -> str:
    return "nvidia-smi -q -d ECC,ROW_REMAPPER" if row.device != "cpu" else "sudo memtester 1G 3"


def _generation(situation: Situation) -> int:
    gpu = situation.gpu
    if gpu is None or isinstance(gpu.link.generation_max, Absent):
        return 0
    return gpu.link.generation_max


def _low(row: Measurement, path: Path) -> Observation:
    share = row.share_of_ceiling or 0.0
    text = f"{row.value:.4g} {row.unit}, {share:.0%} of the ceiling (normal: {path.normal:.0%} and more)"
    return Observation(f"bench.{_name(row)}", text, "this run")


def _merge(first: Finding, second: Finding) -> Finding:
    """One finding with both rows as evidence; each other observation appears once."""
    known = {one.fact for one in first.evidence}
    new = tuple(one for one in second.evidence if one.fact not in known)
    return replace(first, evidence=(*first.evidence, *new))


def _name(row: Measurement) -> str:
    words = [str(row.parameters[key]) for key in ("dtype", "host", "mode") if key in row.parameters]
    return " ".join([row.name, *words])
