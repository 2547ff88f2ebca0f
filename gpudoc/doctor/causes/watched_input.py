"""Why a running job waits for its data: the loader's part of a watch, decided once and told apart by cause."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.live.gain import ENOUGH, HANDING, LoaderPlan, plan_workers, saturated, without
from gpudoc.doctor.live.pace import Pace
from gpudoc.doctor.live.phases import COMPUTE, DATA, Phase
from gpudoc.doctor.live.say import MODEL, NO_GAIN, PROC, STACKS, at_sites, estimated, finding, percent
from gpudoc.doctor.live.shares import JobShares, RankShares, WorkerShares, summarise
from gpudoc.doctor.model import Evidence, Finder, Finding, Observation, Remedy, Skip
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Watch
from gpudoc.units import format_seconds

# below this share of the time a fix would gain less than a run differs from the next
WORTH_TELLING = 0.15


def judge_loader(evidence: Evidence) -> Finding | Skip | None:
    """The one cause for which the main thread lacks data; None when it does not."""
    watch = evidence.watch
    if watch is None:
        return None
    job = summarise(watch)
    if not job.has_stacks:
        return _without_stacks(watch, job)
    lead = job.lead
    if lead is None or lead.share(*DATA) < WORTH_TELLING:
        return None
    restarts = _restart_share(lead)
    if restarts >= WORTH_TELLING and restarts >= 0.4 * lead.share(*DATA):
        return _recreated(watch, job, restarts)
    if not job.workers:
        return _in_main(watch, job, lead)
    return _with_workers(watch, job, lead)


def _without_stacks(watch: Watch, job: JobShares) -> Finding | Skip | None:
    reason = watch.stacks.reason if isinstance(watch.stacks, Absent) else ""
    if job.workers and job.num_workers < job.cpus and min(w.cpu for w in job.workers) > 0.85 and not saturated(job):
        text = "Loader workers never rest: the loader is likely the limit"
        shown = Observation("loader_workers", f"{job.num_workers:.0f}, each at least 85 % of a CPU", PROC)
        return finding("too_few_workers", lost=0.1, sure=0.35, title=text, evidence=(shown,), fix=_more(job, None))
    return Skip(f"stacks: {reason}")


def _restart_share(lead: RankShares) -> float:
    """Share of the time in which workers are started or ended, and the wait for the first batch after each start."""
    lost, after, starts = 0, False, 0
    previous: Phase | None = None
    for phase in lead.timeline:
        if phase is Phase.WORKER_START:
            starts += previous is not Phase.WORKER_START
            after, lost = True, lost + 1
        elif phase in COMPUTE:
            after = False
        else:
            lost += after
        previous = phase
    return lost / max(1, len(lead.timeline)) if starts >= 2 else 0.0


def _recreated(watch: Watch, job: JobShares, share: float) -> Finding:
    lead = job.lead
    sites = lead.sites.get(Phase.WORKER_START, ()) if lead is not None else ()
    return finding(
        "workers_recreated_each_epoch",
        lost=share,
        sure=0.85,
        title=f"{percent(share)} of the time goes into starting loader workers again for each epoch",
        evidence=(
            Observation("worker_restarts", f"{percent(share)} of the time, with the wait for the first batch", STACKS),
            Observation("workers_started", f"{job.worker_births} while watched ({job.seconds:.0f} s)", PROC),
            *at_sites(sites, watch, "started_at"),
            estimated(without(share)),
        ),
    )


def _in_main(watch: Watch, job: JobShares, lead: RankShares) -> Finding:
    loading, collating = lead.share(Phase.DATA_LOAD), lead.share(Phase.COLLATE)
    plan = plan_workers(watch)
    share = loading + collating
    sites = (*lead.sites.get(Phase.DATA_LOAD, ()), *lead.sites.get(Phase.COLLATE, ()))
    seen = (
        Observation("loading_in_main_process", f"{percent(share)} of the time", STACKS),
        *at_sites(sorted(sites, key=lambda site: -site.share), watch, "time_goes_to"),
    )
    if collating > loading and collating >= WORTH_TELLING:
        return finding(
            "collate_in_main_process",
            lost=share,
            title=f"{percent(collating)} of the time goes into collating batches in the main process",
            evidence=(*seen, *_with_plan(plan)),
            fix=(
                *((_use_workers(job, plan),) if plan.gain >= ENOUGH else ()),
                Remedy(say="Make collate_fn cheaper: stack once, without a Python loop per sample."),
            ),
        )
    if plan.gain < ENOUGH:
        return _small_batches(plan, share, seen) if plan.limit == HANDING else _decode_bound(watch, job, seen)
    return finding(
        "too_few_workers",
        lost=share,
        title=f"{percent(share)} of the time the main process loads data itself (num_workers=0)",
        evidence=(*seen, _cpus(job), *_with_plan(plan)),
        fix=(_use_workers(job, plan),),
    )


def _with_plan(plan: LoaderPlan) -> tuple[Observation, ...]:
    """The gain of workers where it is one; where it is none, that workers were thought of, and why not."""
    length = () if plan.step is None else (Observation("step", _length(plan.step), STACKS),)
    if plan.gain >= ENOUGH:
        return (*length, estimated(plan.gain))
    return (*length, Observation(NO_GAIN, f"{plan.gain:.2f}x as fast: the limit is {plan.limit}", MODEL))


def _length(step: Pace) -> str:
    return (
        f"about {format_seconds(step.seconds)}"
        if step.at_most_s is None
        else f"less than {format_seconds(step.at_most_s)}"
    )


def _small_batches(plan: LoaderPlan, share: float, seen: tuple[Observation, ...]) -> Finding:
    return finding(
        "dataloader_bottleneck",
        lost=share,
        title=f"{percent(share)} of the time goes into loading batches that are too small for workers to help",
        evidence=(*seen, *_with_plan(plan)),
        fix=(
            Remedy(say="Make each sample cheaper: build tensors once, before training, and only index them then."),
            Remedy(
                say="Load a batch at a time instead: a Dataset with __getitems__, or larger batches; then use workers."
            ),
        ),
    )


def _with_workers(watch: Watch, job: JobShares, lead: RankShares) -> Finding:
    waiting = lead.share(Phase.DATA_WAIT, Phase.DATA_RECEIVE)
    workers = [w for w in job.workers if w.track.seconds >= 0.3 * job.seconds] or list(job.workers)
    busy = sum(w.busy for w in workers) / len(workers)
    sites = max(workers, key=lambda w: w.busy).sites
    seen = (
        Observation("waiting_for_data", f"{percent(waiting)} of the main thread's time", STACKS),
        Observation("loader_workers", f"{job.num_workers:.0f}, busy {percent(busy)} of the time", STACKS),
        *at_sites(sites, watch, "workers_spend_it_at"),
    )
    slow = _slow_worker(workers)
    if slow is not None:
        return _name_slow(watch, slow, workers, waiting)
    storage = sum(w.storage for w in workers) / len(workers)
    # waiting for a CPU says nothing of the samples, so storage is weighed against computing only
    computed = sum(w.cpu for w in workers) / len(workers)
    if storage >= 0.12 and storage >= 0.7 * computed:
        return _slow_storage(job, workers, waiting, seen, storage)
    if job.num_workers > 2 * job.cpus and job.num_workers >= job.cpus + 2 and saturated(job):
        return _too_many(job, waiting, seen)
    if busy < 0.6:
        return _unexplained_wait(waiting, seen, lead)
    plan = plan_workers(watch)
    computing = sum(w.cpu + w.queued for w in workers) / len(workers)
    if computing >= 0.6 * busy and (saturated(job) or plan.num_workers <= job.num_workers):
        return _decode_bound(watch, job, (*seen, _cpus(job)))
    if plan.gain < ENOUGH:
        return _unexplained_wait(waiting, seen, lead)
    return finding(
        "too_few_workers",
        lost=waiting,
        title=f"{percent(waiting)} of the time training waits for data: {_count(job)} cannot keep up",
        evidence=(*seen, _cpus(job), estimated(plan.gain)),
        fix=_more(job, plan),
    )


def _slow_worker(workers: list[WorkerShares]) -> WorkerShares | None:
    if len(workers) < 2:
        return None
    ordered = sorted(workers, key=lambda w: w.busy)
    rest = ordered[:-1]
    average = sum(w.busy for w in rest) / len(rest)
    return ordered[-1] if ordered[-1].busy >= 0.7 and average <= 0.45 * ordered[-1].busy else None


def _name_slow(watch: Watch, slow: WorkerShares, workers: list[WorkerShares], waiting: float) -> Finding:
    rest = [w.busy for w in workers if w is not slow]
    average = sum(rest) / len(rest)
    balanced = (slow.busy + sum(rest)) / len(workers)
    gain = min(without(waiting), slow.busy / max(balanced, 0.05))
    return finding(
        "slow_worker",
        lost=waiting,
        sure=0.75,
        title=f"One loader worker holds up the others: process {slow.pid} is busy {percent(slow.busy)} of the time, "
        f"the others {percent(average)}",
        evidence=(
            Observation("waiting_for_data", f"{percent(waiting)} of the main thread's time", STACKS),
            Observation("busy_per_worker", ", ".join(percent(w.busy) for w in workers), STACKS),
            *at_sites(slow.sites, watch, "slow_worker_spends_it_at"),
            estimated(gain),
        ),
    )


def _slow_storage(
    job: JobShares, workers: list[WorkerShares], waiting: float, seen: tuple[Observation, ...], storage: float
) -> Finding:
    kinds = sorted({kind for w in workers for kind in w.storage_kinds[:2]})
    read = sum(w.track.read_bytes for w in workers if isinstance(w.track.read_bytes, int)) / job.seconds
    return finding(
        "slow_storage",
        lost=waiting,
        sure=0.7,
        title=f"{percent(waiting)} of the time training waits for data, and the loader waits for storage",
        evidence=(
            *seen,
            Observation("workers_wait_for_storage", f"{percent(storage)} of the time in {', '.join(kinds[:4])}", PROC),
            Observation("read_from_disk", f"{read / 1e6:.1f} MB/s", PROC),
            Observation("workers_cpu", f"{sum(w.cpu for w in workers):.1f} cores", PROC),
            estimated(without(waiting)),
        ),
        fix=(
            Remedy(
                say="Copy the data to a local NVMe disk or to memory, or pack small files into large "
                "ones that are read in order."
            ),
            Remedy(
                say=f"Hide the waiting until then: use more workers (try "
                f"num_workers={round(2 * job.num_workers)}), which cost no CPU while they wait."
            ),
        ),
    )


def _too_many(job: JobShares, waiting: float, seen: tuple[Observation, ...]) -> Finding:
    good = max(1, int(job.cpus))
    queued = sum(w.queued for w in job.workers) / max(1, len(job.workers))
    return finding(
        "too_many_workers",
        lost=waiting,
        sure=0.75,
        title=f"{job.num_workers:.0f} loader workers share {job.cpus:g} CPUs and stand in each other's way",
        evidence=(*seen, _cpus(job), Observation("workers_wait_for_a_cpu", f"{percent(queued)} of the time", PROC)),
        fix=(Remedy(say=f"Use as many workers as there are CPUs: num_workers={good}."),),
    )


def _decode_bound(watch: Watch, job: JobShares, seen: tuple[Observation, ...]) -> Finding:
    del watch
    lead = job.lead
    lost = lead.share(*DATA) if lead is not None else 0.0
    return finding(
        "decode_bound",
        lost=lost,
        title=f"{percent(lost)} of the time goes into data, and decoding fills the {job.cpus:g} CPUs: more "
        f"workers cannot help",
        evidence=(*seen, Observation("upper_bound_of_gain", f"{without(lost):.2f}x if data cost nothing", MODEL)),
    )


def _unexplained_wait(waiting: float, seen: tuple[Observation, ...], lead: RankShares) -> Finding:
    receive = lead.share(Phase.DATA_RECEIVE)
    return finding(
        "dataloader_bottleneck",
        lost=waiting,
        sure=0.5,
        title=f"{percent(waiting)} of the time training waits for data, though the workers are not busy",
        evidence=(*seen, Observation("receiving_batches", percent(receive), STACKS), estimated(without(waiting))),
        fix=(
            Remedy(say="Let workers run further ahead: prefetch_factor=4; and pass fewer, larger tensors per batch."),
        ),
    )


def _count(job: JobShares) -> str:
    number = round(job.num_workers)
    return f"{number} worker{'s' if number != 1 else ''}"


def _cpus(job: JobShares) -> Observation:
    text = f"{job.cpu_used:.1f} used by the job of {job.cpus:g}, {job.others_used:.1f} by others"
    return Observation("cpus", text, PROC)


def _use_workers(job: JobShares, plan: LoaderPlan) -> Remedy:
    return Remedy(say=f"Load in other processes: {_workers(job, plan, plan.num_workers)}")


def _workers(job: JobShares, plan: LoaderPlan, number: int) -> str:
    """The setting and what then limits; where that is more workers than CPUs, fewer first, and why more may help."""
    setting = "DataLoader(..., num_workers={}, persistent_workers=True)"
    if number <= job.cpus or not plan.ladder:
        return f"{setting.format(number)}. Then the limit is {plan.limit}.{_warns(job, plan, number)}"
    (first, gain), *between = plan.ladder
    steps = "".join(f"{n}, " for n, _ in between[:-1])
    return (
        f"{setting.format(first)}, about {gain:.1f} times as fast. More may help, "
        f"up to about {plan.gain:.1f} times: try {steps}num_workers={plan.ladder[-1][0]}.{_warns(job, plan, number)}"
    )


def _warns(job: JobShares, plan: LoaderPlan, number: int) -> str:
    """Why more workers than CPUs are right here though PyTorch warns of them; '' for no more than CPUs."""
    if number <= job.cpus:
        return ""
    return (
        f" PyTorch will warn of more workers than CPUs ({job.cpus:g}): loading waits {percent(plan.waits)} of its "
        "time, without a CPU."
    )


def _more(job: JobShares, plan: LoaderPlan | None) -> tuple[Remedy, ...]:
    wanted = max(plan.num_workers if plan is not None else 0, round(job.num_workers) + 1)
    plain = f"DataLoader(..., num_workers={wanted}, persistent_workers=True)."
    return (Remedy(say=f"Use more workers: {plain if plan is None else _workers(job, plan, wanted)}"),)


_NAMES = (
    "too_few_workers",
    "too_many_workers",
    "dataloader_bottleneck",
    "slow_storage",
    "workers_recreated_each_epoch",
    "collate_in_main_process",
    "slow_worker",
    "decode_bound",
)


def _finder(name: str) -> Finder:
    def find(evidence: Evidence) -> Iterator[Finding | Skip]:
        verdict = judge_loader(evidence)
        if isinstance(verdict, Skip) or (verdict is not None and verdict.id == name):
            yield verdict

    return Finder(id=name, find=find, reads="watch")


FINDERS = tuple(_finder(name) for name in _NAMES)
