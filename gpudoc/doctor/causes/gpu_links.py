"""Check the links of each GPU: width and speed of PCIe, NVLinks up and without errors, the NVSwitch fabric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpudoc.doctor.causes.live import nvml_gpus, seen_of
from gpudoc.doctor.causes.per_gpu import GpuCheck, Seen, Sign, read, skip_of
from gpudoc.doctor.model import Card, Evidence, Finder, Finding, Observation, Skip
from gpudoc.facts.model import Absent, Gpu
from gpudoc.knowledge import nvlinks

_BUSY_PERCENT = 50
_BUSIEST_STATE = 2


def _judge_width(link_width: int, link_width_max: int) -> Seen | Absent | None:
    if not link_width:
        return Absent("link.width: the driver says 0 lanes")
    text = f"PCIe x{link_width} of x{link_width_max}"
    return Seen(text=text) if link_width < link_width_max else None


def _judge_speed(
    link_generation: int, link_generation_max: int, utilization_percent: int, performance_state: int
) -> Seen | Absent | None:
    """The sign of a slow link under load; an idle link goes down to generation 1 to save power."""
    if not link_generation:
        return Absent("link.generation: the driver says 0")
    busy = utilization_percent >= _BUSY_PERCENT and performance_state <= _BUSIEST_STATE
    text = f"PCIe generation {link_generation} of {link_generation_max} under load"
    return Seen(text=text) if busy and link_generation < link_generation_max else None


def _flag_counter(what: str, name: str) -> Sign:
    """The sign of a link that repeats transfers or has errors right now; a counter that stands still shows the past."""

    def judge(before: int, added: int) -> Seen | None:
        text = f"{what}: {added} more between two readings, {before + added} in all"
        return Seen(text=text, confidence=0.85) if added > 0 else None

    return Sign(judge, names=(name, f"{name}_added"))


def _judge_fabric_state(fabric_state: str) -> Seen | None:
    text = f"fabric registration is {fabric_state}, and it should be completed"
    return Seen(text=text, confidence=0.8) if fabric_state != "completed" else None


def _judge_fabric_status(fabric_state: str, fabric_status: int) -> Seen | None:
    """The sign of a failed registration; its status means nothing before the registration has ended."""
    text = f"the fabric registration ended with NVML code {fabric_status}"
    return Seen(text=text) if fabric_state == "completed" and fabric_status != 0 else None


def _judge_fabric_health(fabric_health: tuple[str, ...]) -> Seen | None:
    return Seen(text=f"NVLink fabric: {', '.join(fabric_health)}") if fabric_health else None


class _Nvlinks(NamedTuple):
    name: str
    virtualization: str
    nvlink_active: int
    nvlink_total: int


def find_nvlinks(evidence: Evidence) -> Iterator[Finding | Skip]:
    """NVLinks that are down: fewer than GPUs of the same kind have, or than its model has on every board.

    A single GPU, as from a cloud, has no GPU to link with, and in a virtual machine links may lead to GPUs that the
    machine was not given.
    """
    links = [(gpu, read(gpu, _Nvlinks)) for gpu in nvml_gpus(evidence.machine)]
    known = [(gpu, facts) for gpu, facts in links if not isinstance(facts, Absent)]
    found: list[tuple[Gpu, Observation]] = []
    for gpu, facts in known:
        likes = [other for _, other in known if other.name == facts.name]
        most = max(other.nvlink_active for other in likes)
        model = nvlinks.find_nvlinks(facts.name) if len(likes) > 1 else None
        whole = model is not None and model.to_switches and facts.virtualization == "none"
        by_model = model is not None and facts.nvlink_active < (model.links if whole else 1)
        if by_model or facts.nvlink_active < most:
            should = f"the same models have {most}" if model is None else f"{model.links} is what this model has"
            found.append((gpu, seen_of(gpu, f"{facts.nvlink_active} NVLinks up, {should}")))
    if found:
        cards, seen = tuple(Card.of(gpu) for gpu, _ in found), tuple(seen for _, seen in found)
        title = f"NVLinks are down on GPU {', '.join(str(gpu.index) for gpu, _ in found)}"
        yield Finding(id="nvlink_error", severity="warning", confidence=0.9, cards=cards, evidence=seen, title=title)
    yield from skip_of((facts.reason, gpu.index) for gpu, facts in links if isinstance(facts, Absent))


CHECKS: tuple[GpuCheck, ...] = (
    GpuCheck(cause="pcie_link_degraded", signs=(Sign(_judge_width), Sign(_judge_speed))),
    GpuCheck(cause="pcie_link_replays", signs=(_flag_counter("PCIe replays", "link_replays"),)),
    GpuCheck(cause="nvlink_error", signs=(_flag_counter("NVLink errors", "nvlink_errors"),)),
    GpuCheck(
        cause="nvlink_fabric_unhealthy",
        signs=(Sign(_judge_fabric_state), Sign(_judge_fabric_status), Sign(_judge_fabric_health)),
    ),
)

FINDERS: tuple[Finder, ...] = (
    CHECKS[0].text_finder(),
    *(check.finder() for check in CHECKS),
    Finder(id="nvlink_error", find=find_nvlinks, needs=("gpus",)),
)
