"""The finders of a running job, in the order of use, and the one that says that all is well."""

from __future__ import annotations

from gpudoc.doctor.causes import job_gpu, job_hang, job_host, job_input, job_loop, job_memory
from gpudoc.doctor.live.finders import busiest, watched
from gpudoc.doctor.live.phases import COMPUTE
from gpudoc.doctor.live.say import PROC, STACKS, percent
from gpudoc.doctor.live.shares import JobShares, RankShares
from gpudoc.doctor.model import Evidence, Finder, Finding, Observation
from gpudoc.doctor.remedies import do
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Watch

# tensor cores that work for less of the time than this are little used for training
_WELL_USED = 0.1
_OTHERS = (
    *job_hang.FINDERS,
    *job_host.FINDERS,
    *job_memory.FINDERS,
    *job_input.FINDERS,
    *job_loop.FINDERS,
    *job_gpu.FINDERS,
)


def judge_compute(watch: Watch, job: JobShares, lead: RankShares) -> Finding | None:
    """A device that computes nearly all the time, without another cause: healthy, with steps that may still help."""
    gpu, computing = busiest(watch), lead.share(*COMPUTE)
    if not isinstance(gpu, Absent):
        well = gpu.busy >= job_gpu.BUSY
        where, shown = f"the GPU is busy {percent(gpu.busy)} of the time", gpu.observations()
        if gpu.tensor_active is not None:
            where += f", its tensor cores {percent(gpu.tensor_active)}"
        full = gpu.tensor_active is None or gpu.tensor_active >= _WELL_USED
        precision = "bf16 autocast (or TF32: torch.set_float32_matmul_precision('high'))"
    else:
        # a thread that stays in one place and uses no CPU does not compute, whatever its stack shows
        well = computing >= 0.5 and lead.cpu_wanted >= 0.5 * computing
        where, shown, precision = f"computing takes {percent(computing)} of the time", (), "bf16 autocast"
        full = True
    evidence = Evidence(source="process", watch=watch)
    if not well or any(isinstance(found, Finding) for finder in _OTHERS for found in finder.find(evidence)):
        return None
    title = f"{'Healthy' if full else 'Nothing waits, but the GPU could do more'}: {where}"
    cpus = Observation("cpus", f"{job.cpu_used:.1f} used of {job.cpus:g}", PROC)
    seen = (Observation("phases", _split(lead), STACKS), cpus, *shown)
    fix = (
        do(f"Try what may still help: {precision}, torch.compile, channels_last for convolutions, a larger batch."),
        do("Let gpudoc try and measure them.", "gpudoc tune --model cfg.yaml --only speed,batch"),
    )
    return Finding(id="compute_bound", severity="info", confidence=0.9, title=title, evidence=seen, fix=fix)


def _split(lead: RankShares) -> str:
    parts = sorted(lead.phases.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{phase.value} {percent(share)}" for phase, share in parts[:5] if share >= 0.02)


FINDERS: tuple[Finder, ...] = (*_OTHERS, watched("compute_bound", judge_compute))
