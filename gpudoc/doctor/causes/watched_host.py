"""What the machine holds back while a job runs: CPUs and a quota."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.live.say import PROC, estimated, finding, percent
from gpudoc.doctor.live.shares import JobShares, summarise
from gpudoc.doctor.model import Evidence, Finder, Finding, Observation, Remedy, Skip
from gpudoc.doctor.spinning import Crowd, find_spinning
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Watch

OVERSUBSCRIBED = 1.7
THROTTLED = 0.2
THROTTLED_AT_ALL = 0.05
# beside others each thread waits a little; from here on a team does
WAITED = 0.15


def find_oversubscription(evidence: Evidence) -> Iterator[Finding | Skip]:
    """More threads ready to run than CPUs, by threads inside processes and not by the number of loader workers."""
    watch = evidence.watch
    if watch is None:
        return
    job = summarise(watch)
    if all(isinstance(t.queued_s, Absent) for t in watch.processes):
        yield Skip("/proc/PID/schedstat is not there")
        return
    outside_workers = job.cpu_demand - job.worker_demand
    per_worker = job.worker_demand / job.num_workers if job.num_workers else 0.0
    crowded = job.cpu_demand >= OVERSUBSCRIBED * job.cpus and job.cpu_demand >= job.cpus + 1
    if not crowded or _quota_explains(watch, job) or (outside_workers < 1.2 * job.cpus and per_worker < 1.4):
        return
    widest = max(watch.processes, key=lambda t: t.cpu_s + (0.0 if isinstance(t.queued_s, Absent) else t.queued_s))
    ranks = max(1, len(job.ranks))
    threads = max(1, int(job.cpus / ranks))
    settings = ", ".join(f"{k}={v}" for k, v in widest.thread_settings.items()) or "none set"
    yield finding(
        "cpu_oversubscription",
        lost=0.5,
        sure=0.85,
        title=f"{job.cpu_demand:.0f} threads at a time want {job.cpus:g} CPUs",
        evidence=(
            Observation(
                "threads_ready_to_run", f"{job.cpu_demand:.1f} on average, {job.cpu_used:.1f} of them ran", PROC
            ),
            Observation("waited_for_a_cpu", percent(1 - job.cpu_used / job.cpu_demand), PROC),
            Observation("widest_process", f"{widest.pid}: {widest.num_threads} threads", PROC),
            Observation("thread_settings", settings, "environment of the process"),
        ),
        fix=(
            Remedy(
                say=f"Give each process its share of the CPUs ({job.cpus:g} over {ranks}).",
                run=f"export OMP_NUM_THREADS={threads} MKL_NUM_THREADS={threads}",
            ),
            Remedy(
                say="Use one thread in each loader worker (torch.set_num_threads(1), cv2.setNumThreads(0) "
                "in worker_init_fn)."
            ),
        ),
    )


def _quota_explains(watch: Watch, job: JobShares) -> bool:
    """Whether the threads would fit the CPUs that are seen, and only the quota is too small for them."""
    limits = watch.limits
    if isinstance(limits, Absent) or limits.cpus_usable >= limits.cpus_affinity:
        return False
    return 1.5 * limits.cpus_usable <= job.cpu_demand < OVERSUBSCRIBED * limits.cpus_affinity


def find_cpu_quota(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A container's CPU quota that stopped the job again and again while it was watched."""
    watch = evidence.watch
    if watch is None:
        return
    limits = watch.limits
    if isinstance(limits, Absent):
        yield Skip(f"limits: {limits.reason}")
        return
    quota, periods, stopped = limits.cpu_quota_cores, limits.periods, limits.throttled_periods
    if isinstance(quota, Absent) or isinstance(periods, Absent) or isinstance(stopped, Absent) or periods < 10:
        return
    share = stopped / periods
    job = summarise(watch)
    # beside other busy jobs one that is held back gets to its quota in fewer periods
    enough = THROTTLED_AT_ALL if _quota_explains(watch, job) else THROTTLED
    if share < enough or quota >= limits.cpus_affinity:
        return
    throttled = limits.throttled_s if isinstance(limits.throttled_s, float) else 0.0
    wish = max(job.cpu_demand, job.cpu_used + throttled / watch.seconds)
    yield finding(
        "cgroup_cpu_limit",
        lost=share,
        sure=0.9,
        title=f"The CPU quota of {quota:g} stops the job in {percent(share)} of all periods; "
        f"{limits.cpus_affinity} CPUs are seen",
        evidence=(
            Observation("cpu.max", f"{quota:g} CPUs", "cgroup"),
            Observation("throttled_periods", f"{stopped} of {periods}", "cpu.stat"),
            Observation("cpus_seen", str(limits.cpus_affinity), "sched_getaffinity"),
            estimated(min(limits.cpus_affinity / quota, max(1.0, wish / quota), 1 / max(0.05, 1 - share))),
        ),
        fix=(
            Remedy(say="Ask for more CPUs: docker run --cpus, Kubernetes resources.limits.cpu, Slurm --cpus-per-task."),
            Remedy(
                say=f"Fit into the quota instead: OMP_NUM_THREADS={max(1, int(quota))}, and num_workers at "
                f"most {max(1, int(quota))}."
            ),
        ),
    )


def find_openmp_spinning(evidence: Evidence) -> Iterator[Finding | Skip]:
    """A training process with more threads at work than the CPUs that others leave, which wait for each other awake."""
    watch = evidence.watch
    if watch is None:
        return
    job = summarise(watch)
    lead = job.lead
    if lead is None or lead.track is None or isinstance(lead.track.queued_s, Absent):
        yield Skip("no training process, or no /proc/PID/schedstat")
        return
    track, queued_s = lead.track, lead.track.queued_s
    # what the threads of this one process want together; one that only waits is asleep and wants nothing
    wanted = (track.cpu_s + queued_s) / track.seconds
    crowd = Crowd(threads=round(wanted), cpus=job.cpus, other_cpus=job.others_used, openmp=track.openmp)
    found = find_spinning(crowd)
    waited = queued_s / max(track.cpu_s + queued_s, 1e-9)
    if found is None or waited < WAITED or job.cpu_demand >= OVERSUBSCRIBED * job.cpus:
        return
    switches = track.switches_involuntary
    yield finding(
        found.id,
        lost=waited,
        title=f"{found.title}: {percent(waited)} of what they want they wait for",
        evidence=(
            Observation("waited_for_a_cpu", percent(waited), PROC),
            *found.evidence,
            *(
                (Observation("taken_off_a_cpu", f"{switches / track.seconds:.0f} times per second", PROC),)
                if isinstance(switches, int)
                else ()
            ),
        ),
        fix=found.fix,
    )


FINDERS = (
    Finder(id="cgroup_cpu_limit", find=find_cpu_quota, reads="watch"),
    Finder(id="cpu_oversubscription", find=find_oversubscription, reads="watch"),
    Finder(id="openmp_spinning", find=find_openmp_spinning, reads="watch"),
)
