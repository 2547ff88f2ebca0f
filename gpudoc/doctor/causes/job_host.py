"""Judge the CPUs that a running job does not get: too many threads, and a quota."""

from __future__ import annotations

from gpudoc.doctor.live.finders import watched
from gpudoc.doctor.live.say import PROC, estimated, finding, percent
from gpudoc.doctor.live.shares import JobShares, RankShares, wanted_s
from gpudoc.doctor.model import Finding, Observation, Skip
from gpudoc.doctor.remedies import do
from gpudoc.doctor.spinning import Crowd, find_spinning
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Limits, Watch

OVERSUBSCRIBED = 1.7
THROTTLED = 0.2
THROTTLED_AT_ALL = 0.05
# every thread on a shared machine waits a little; a team of threads waits from this share on
WAITED = 0.15


def judge_threads(watch: Watch, job: JobShares) -> Finding | Skip | None:
    """More threads ready to run than CPUs, because of threads inside processes, not of the number of loader workers."""
    if all(isinstance(t.queued_s, Absent) for t in watch.processes):
        return Skip("there is no /proc/PID/schedstat")
    outside_workers = job.cpu_demand - job.worker_demand
    per_worker = job.worker_demand / job.num_workers if job.num_workers else 0.0
    crowded = job.cpu_demand >= OVERSUBSCRIBED * job.cpus and job.cpu_demand >= job.cpus + 1
    if not crowded or _quota_explains(watch, job) or (outside_workers < 1.2 * job.cpus and per_worker < 1.4):
        return None
    widest = max(watch.processes, key=wanted_s)
    ranks = max(1, len(job.ranks))
    threads = max(1, int(job.cpus / ranks))
    settings = ", ".join(f"{k}={v}" for k, v in widest.thread_settings.items()) or "none set"
    title = f"{job.cpu_demand:.0f} threads at a time need {job.cpus:g} CPUs"
    ready = f"{job.cpu_demand:.1f} on average, {job.cpu_used:.1f} of them ran"
    seen = (
        Observation("threads_ready_to_run", ready, PROC),
        Observation("waited_for_a_cpu", percent(1 - job.cpu_used / job.cpu_demand), PROC),
        Observation("widest_process", f"{widest.pid}: {widest.num_threads} threads", PROC),
        Observation("thread_settings", settings, "environment of the process"),
    )
    export = f"export OMP_NUM_THREADS={threads} MKL_NUM_THREADS={threads}"
    fix = (
        do(f"Give each process its share of the CPUs ({job.cpus:g} over {ranks}).", export),
        do("Use one thread in each loader worker (torch.set_num_threads(1), cv2.setNumThreads(0) in worker_init_fn)."),
    )
    return finding("cpu_oversubscription", lost=0.5, sure=0.85, title=title, evidence=seen, fix=fix)


def _quota_explains(watch: Watch, job: JobShares) -> bool:
    """Whether the threads would fit the visible CPUs, and only the quota is too small for them."""
    limits = watch.limits
    if isinstance(limits, Absent) or limits.cpus_usable >= limits.cpus_affinity:
        return False
    return 1.5 * limits.cpus_usable <= job.cpu_demand < OVERSUBSCRIBED * limits.cpus_affinity


def judge_quota(watch: Watch, job: JobShares, limits: Limits) -> Finding | None:
    """A container's CPU quota that stopped the job again and again during the watch."""
    quota, periods, stopped = limits.cpu_quota_cores, limits.periods, limits.throttled_periods
    if isinstance(quota, Absent) or isinstance(periods, Absent) or isinstance(stopped, Absent) or periods < 10:
        return None
    share = stopped / periods
    # next to other busy jobs, a job reaches its quota in fewer periods
    enough = THROTTLED_AT_ALL if _quota_explains(watch, job) else THROTTLED
    if share < enough or quota >= limits.cpus_affinity:
        return None
    throttled = limits.throttled_s if isinstance(limits.throttled_s, float) else 0.0
    wish = max(job.cpu_demand, job.cpu_used + throttled / watch.seconds)
    fitting = max(1, int(quota))
    stops = f"The CPU quota of {quota:g} stops the job in {percent(share)} of all periods"
    title = f"{stops}; {limits.cpus_affinity} CPUs are visible"
    seen = (
        Observation("cpu.max", f"{quota:g} CPUs", "cgroup"),
        Observation("throttled_periods", f"{stopped} of {periods}", "cpu.stat"),
        Observation("cpus_seen", str(limits.cpus_affinity), "sched_getaffinity"),
        estimated(min(limits.cpus_affinity / quota, max(1.0, wish / quota), 1 / max(0.05, 1 - share))),
    )
    fix = (
        do("Ask for more CPUs: docker run --cpus, Kubernetes resources.limits.cpu, Slurm --cpus-per-task."),
        do(f"Stay within the quota: OMP_NUM_THREADS={fitting}, and num_workers at most {fitting}."),
    )
    return finding("cgroup_cpu_limit", lost=share, sure=0.9, title=title, evidence=seen, fix=fix)


def judge_spinning(job: JobShares, lead: RankShares) -> Finding | Skip | None:
    """A training process with more busy threads than the CPUs that others leave, which wait for each other awake."""
    track = lead.track
    if track is None or isinstance(track.queued_s, Absent):
        return Skip("no /proc/PID/schedstat of the training process")
    # the CPU demand of all threads of this process; a thread that only waits is asleep and has no demand
    wanted = wanted_s(track)
    crowd = Crowd(threads=round(wanted / track.seconds), cpus=job.cpus, other_cpus=job.others_used, openmp=track.openmp)
    found = find_spinning(crowd)
    waited = track.queued_s / max(wanted, 1e-9)
    if found is None or waited < WAITED or job.cpu_demand >= OVERSUBSCRIBED * job.cpus:
        return None
    switches: tuple[Observation, ...] = ()
    if not isinstance(track.switches_involuntary, Absent):
        often = f"{track.switches_involuntary / track.seconds:.0f} times per second"
        switches = (Observation("taken_off_a_cpu", often, PROC),)
    title = f"{found.title}: they wait for a CPU {percent(waited)} of their time"
    seen = (Observation("waited_for_a_cpu", percent(waited), PROC), *found.evidence, *switches)
    return finding(found.id, lost=waited, title=title, evidence=seen, fix=found.fix)


FINDERS = (
    watched("cgroup_cpu_limit", judge_quota),
    watched("cpu_oversubscription", judge_threads),
    watched("openmp_spinning", judge_spinning),
)
