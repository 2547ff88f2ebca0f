"""The facts of a watch for the JSON document's `watch`; shares are of the watched time, 0 to 1."""

from __future__ import annotations

from gpudoc.doctor.live.device import DeviceUse, summarise_devices
from gpudoc.doctor.live.phases import Phase
from gpudoc.doctor.live.shares import RankShares, WorkerShares, summarise
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Watch


def dump(watch: Watch) -> dict[str, object]:
    """The shares of a watch as plain values; parts that were not seen are under `absent`, with the reason."""
    job = summarise(watch)
    devices = summarise_devices(watch)
    absent = {
        name: fact.reason
        for name, fact in (("stacks", watch.stacks), ("glances", watch.glances), ("gpus", watch.gpus))
        if isinstance(fact, Absent)
    }
    tracks = () if isinstance(watch.gpus, Absent) else watch.gpus
    absent |= {f"counters of GPU {track.index}": track.counters_absent for track in tracks if track.counters_absent}
    return {
        "pid": watch.pid,
        "seconds": round(watch.seconds, 2),
        "interrupted": watch.interrupted,
        "ended": watch.ended,
        "ranks": [_rank(rank) for rank in job.ranks],
        "workers": [_worker(worker) for worker in job.workers],
        "num_workers": job.num_workers,
        "cpus": {"usable": job.cpus, "used": round(job.cpu_used, 2), "wanted": round(job.cpu_demand, 2)},
        "gpus": [] if isinstance(devices, Absent) else [_device(device) for device in devices],
        "absent": absent,
    }


def _rank(rank: RankShares) -> dict[str, object]:
    phases: list[tuple[Phase, float]] = sorted(rank.phases.items(), key=lambda pair: -pair[1])
    return {
        "pid": rank.pid,
        "rank": rank.rank,
        "phases": {phase.value: round(share, 3) for phase, share in phases},
        "cpu": round(rank.cpu, 3),
    }


def _device(device: DeviceUse) -> dict[str, object]:
    shares = {name: getattr(device, name) for name in ("power_share", "sm_active", "tensor_active", "dram_active")}
    return {"index": device.index, "name": device.name, "busy": round(device.busy, 3)} | shares


def _worker(worker: WorkerShares) -> dict[str, object]:
    return {
        "pid": worker.pid,
        "busy": round(worker.busy, 3),
        "cpu": round(worker.cpu, 3),
        "waits_for_a_cpu": round(worker.queued, 3),
        "waits_for_storage": round(worker.storage, 3),
    }
