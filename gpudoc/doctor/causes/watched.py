"""The finders of a running job, in the order they are asked; and the one that says that all is well."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes import watched_gpu, watched_hang, watched_host, watched_input, watched_loop, watched_memory
from gpudoc.doctor.live.device import summarise_devices
from gpudoc.doctor.live.phases import COMPUTE, Phase
from gpudoc.doctor.live.say import PROC, STACKS, percent
from gpudoc.doctor.live.shares import RankShares, summarise
from gpudoc.doctor.model import Evidence, Finder, Finding, Observation, Remedy, Skip
from gpudoc.facts.model import Absent

_OTHERS = (
    *watched_hang.FINDERS,
    *watched_host.FINDERS,
    *watched_memory.FINDERS,
    *watched_input.FINDERS,
    *watched_loop.FINDERS,
    *watched_gpu.FINDERS,
)
_NEITHER = (Phase.SYNC, Phase.STARTUP)


def find_compute_bound(evidence: Evidence) -> Iterator[Finding | Skip]:
    """The device computes nearly all the time and no other cause is found: healthy, with what would still help."""
    watch = evidence.watch
    if watch is None:
        return
    job = summarise(watch)
    lead = job.lead
    if lead is None:
        yield Skip(f"stacks: {watch.stacks.reason}" if isinstance(watch.stacks, Absent) else "no training was seen")
        return
    devices = summarise_devices(watch)
    gpu = None if isinstance(devices, Absent) else max(devices, key=lambda d: d.busy)
    on_gpu = gpu is not None and gpu.busy >= watched_gpu.BUSY
    computing = lead.share(*COMPUTE, *(_NEITHER if on_gpu else ()))
    if not on_gpu and (computing < 0.5 or (gpu is not None and gpu.busy < watched_gpu.BUSY)):
        return
    # a thread that stands in one place and uses no CPU does not compute, whatever its stack says
    if not on_gpu and lead.cpu_wanted < 0.5 * computing:
        return
    if any(isinstance(found, Finding) for finder in _OTHERS for found in finder.find(evidence)):
        return
    where = (
        f"the GPU is busy {percent(gpu.busy)}"
        if on_gpu and gpu is not None
        else f"computing takes {percent(computing)}"
    )
    yield Finding(
        id="compute_bound",
        severity="info",
        confidence=0.9,
        title=f"Healthy: {where} of the time",
        evidence=(
            Observation("phases", _split(lead), STACKS),
            Observation("cpus", f"{job.cpu_used:.1f} used of {job.cpus:g}", PROC),
            *(gpu.observations() if gpu is not None else ()),
        ),
        fix=_still_helps(on_gpu),
    )


def _split(lead: RankShares) -> str:
    parts = sorted(lead.phases.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{phase.value} {percent(share)}" for phase, share in parts[:5] if share >= 0.02)


def _still_helps(on_gpu: bool) -> tuple[Remedy, ...]:
    precision = "bf16 autocast (or TF32: torch.set_float32_matmul_precision('high'))" if on_gpu else "bf16 autocast"
    return (
        Remedy(
            say=f"Try what may still help: {precision}, torch.compile, channels_last for convolutions, a larger batch."
        ),
        Remedy(say="Have them tried and measured.", run="gpudoc tune --model cfg.yaml --only speed,batch"),
    )


FINDERS: tuple[Finder, ...] = (*_OTHERS, Finder(id="compute_bound", find=find_compute_bound, reads="watch"))
