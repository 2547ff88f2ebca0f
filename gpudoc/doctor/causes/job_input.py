"""Find why a running job waits for its data: the loader's part of a watch is judged once, with one cause as result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpudoc.doctor.live.finders import watched
from gpudoc.doctor.live.gain import ENOUGH, HANDING, LoaderPlan, plan_workers, saturated, without
from gpudoc.doctor.live.pace import crowd_stretch
from gpudoc.doctor.live.phases import COMPUTE, DATA, Phase
from gpudoc.doctor.live.say import MODEL, NO_GAIN, PROC, STACKS, at_sites, estimated, finding, percent, spent
from gpudoc.doctor.live.shares import JobShares, RankShares, WorkerShares, entries
from gpudoc.doctor.model import Finder, Finding, Observation, Skip
from gpudoc.doctor.remedies import do
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Watch
from gpudoc.units import format_count

# below this share of the time, a fix gains less than the difference between two runs
WORTH_TELLING = 0.15
_SETTING = "DataLoader(..., num_workers={}, persistent_workers=True)"


def judge_loader(watch: Watch, job: JobShares) -> Finding | Skip | None:
    """The one cause why the main thread lacks data; None if it does not lack data."""
    if isinstance(watch.stacks, Absent):
        return _without_stacks(job) or Skip(f"stacks: {watch.stacks.reason}")
    lead = job.lead
    if lead is None or lead.share(*DATA) < WORTH_TELLING:
        return None
    restarts = _restart_share(lead)
    if restarts >= WORTH_TELLING and restarts >= 0.4 * lead.share(*DATA):
        return _recreated(watch, job, lead, restarts)
    return _with_workers(watch, job, lead) if job.workers else _in_main(watch, job, lead)


def _without_stacks(job: JobShares) -> Finding | None:
    if not job.workers or job.num_workers >= job.cpus or min(w.cpu for w in job.workers) <= 0.85 or saturated(job):
        return None
    title = "Loader workers never rest: the loader is likely the limit"
    seen = (Observation("loader_workers", f"{job.num_workers:.0f}, each at least 85 % of a CPU", PROC),)
    fix = (do(f"Use more workers: {_SETTING.format(round(job.num_workers) + 1)}."),)
    return finding("too_few_workers", lost=0.1, sure=0.35, title=title, evidence=seen, fix=fix)


def _restart_share(lead: RankShares) -> float:
    """Share of the time for starting and ending workers, and for the wait for the first batch after each start."""
    lost, after = 0, False
    for phase in lead.timeline:
        after = phase not in COMPUTE and (after or phase is Phase.WORKER_START)
        lost += after
    starts = entries((False, *(phase is Phase.WORKER_START for phase in lead.timeline)))
    return lost / len(lead.timeline) if starts >= 2 else 0.0


def _recreated(watch: Watch, job: JobShares, lead: RankShares, share: float) -> Finding:
    title = f"{percent(share)} of the time is spent restarting loader workers for each epoch"
    seen = (
        Observation("worker_restarts", f"{percent(share)} of the time, with the wait for the first batch", STACKS),
        Observation("workers_started", f"{job.worker_births} while watched ({job.seconds:.0f} s)", PROC),
        *at_sites(lead.lines(Phase.WORKER_START), watch, "started_at"),
        estimated(without(share)),
    )
    return finding("workers_recreated_each_epoch", lost=share, sure=0.85, title=title, evidence=seen)


def _in_main(watch: Watch, job: JobShares, lead: RankShares) -> Finding:
    collating, share = lead.share(Phase.COLLATE), lead.share(Phase.DATA_LOAD, Phase.COLLATE)
    plan = plan_workers(watch)
    helps = plan.gain >= ENOUGH
    use_workers = do(f"Load in other processes: {_workers(job, plan, plan.num_workers)}")
    seen = spent(watch, lead, "loading_in_main_process", "time_goes_to", Phase.DATA_LOAD, Phase.COLLATE)
    if collating > share - collating and collating >= WORTH_TELLING:
        title = f"{percent(collating)} of the time is spent collating batches in the main process"
        cheaper = do("Make collate_fn cheaper: stack once, without a Python loop per sample.")
        fix, evidence = (use_workers, cheaper) if helps else (cheaper,), (*seen, *_with_plan(plan))
        return finding("collate_in_main_process", lost=share, title=title, evidence=evidence, fix=fix)
    title = f"{percent(share)} of the time the main process loads data itself (num_workers=0)"
    if not helps and plan.limit == HANDING and plan.in_a_crowd:
        return _unknown_gain(job, title, share, seen)
    if not helps:
        return _small_batches(plan, share, seen) if plan.limit == HANDING else _decode_bound(job, lead, seen)
    evidence = (*seen, _cpus(job), *_with_plan(plan))
    return finding("too_few_workers", lost=share, title=title, evidence=evidence, fix=(use_workers,))


def _unknown_gain(job: JobShares, title: str, share: float, seen: tuple[Observation, ...]) -> Finding:
    """With many other processes, passing a batch may take ten times as long; that does not speak against workers."""
    unknown = Observation(NO_GAIN, "not known: other processes use the CPUs that passing batches needs", MODEL)
    seen = (*seen, _cpus(job), unknown)
    fix = (do(f"Try {_SETTING.format(1)} and compare, best while fewer other processes run."),)
    return finding("too_few_workers", lost=share, sure=0.5, title=title, evidence=seen, fix=fix)


def _with_plan(plan: LoaderPlan) -> tuple[Observation, ...]:
    """The gain from workers if there is one; else that workers were considered, and why they do not help."""
    no_gain = Observation(NO_GAIN, f"{plan.gain:.2f}x as fast: the limit is {plan.limit}", MODEL)
    gain = estimated(plan.gain) if plan.gain >= ENOUGH else no_gain
    return (gain,) if plan.step is None else (Observation("step", str(plan.step), STACKS), gain)


def _small_batches(plan: LoaderPlan, share: float, seen: tuple[Observation, ...]) -> Finding:
    title = f"{percent(share)} of the time is spent loading batches that are too small for workers to help"
    fix = (
        do("Make each sample cheaper: build tensors once, before training, then only index them."),
        do("Load a batch at a time instead: a Dataset with __getitems__, or larger batches; then use workers."),
    )
    return finding("dataloader_bottleneck", lost=share, title=title, evidence=(*seen, *_with_plan(plan)), fix=fix)


def _with_workers(watch: Watch, job: JobShares, lead: RankShares) -> Finding | Skip:
    waiting = lead.share(Phase.DATA_WAIT, Phase.DATA_RECEIVE)
    workers = [w for w in job.workers if w.track.seconds >= 0.3 * job.seconds] or list(job.workers)
    busy = _mean(w.busy for w in workers)
    waits = Observation("waiting_for_data", f"{percent(waiting)} of the main thread's time", STACKS)
    seen = (
        waits,
        Observation("loader_workers", f"{job.num_workers:.0f}, busy {percent(busy)} of the time", STACKS),
        *at_sites(max(workers, key=lambda w: w.busy).sites, watch, "workers_spend_it_at"),
    )
    slow = _slow_worker(watch, workers, waiting, waits)
    if slow is not None:
        return slow
    storage = _mean(w.storage for w in workers)
    # a wait for a CPU says nothing about the samples, so storage is compared with computing only
    if storage >= 0.12 and storage >= 0.7 * _mean(w.cpu for w in workers):
        return _slow_storage(job, workers, waiting, seen, storage)
    if job.num_workers > 2 * job.cpus and job.num_workers >= job.cpus + 2 and saturated(job):
        return _too_many(job, waiting, seen)
    plan = plan_workers(watch)
    computing = busy >= 0.6 and _mean(w.cpu + w.queued for w in workers) >= 0.6 * busy
    if computing and (saturated(job) or plan.num_workers <= job.num_workers):
        return _decode_bound(job, lead, (*seen, _cpus(job)))
    if busy < 0.6 or plan.gain < ENOUGH:
        return _unexplained_wait(waiting, seen, lead)
    number = round(job.num_workers)
    count = format_count(number, "worker")
    title = f"{percent(waiting)} of the time training waits for data: {count} cannot keep up"
    seen = (*seen, _cpus(job), estimated(plan.gain))
    fix = (do(f"Use more workers: {_workers(job, plan, max(plan.num_workers, number + 1))}"),)
    return finding("too_few_workers", lost=waiting, title=title, evidence=seen, fix=fix)


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)


def _slow_worker(watch: Watch, workers: Sequence[WorkerShares], waiting: float, waits: Observation) -> Finding | None:
    *rest, slow = sorted(workers, key=lambda w: w.busy)
    if not rest or slow.busy < 0.7:
        return None
    average = _mean(w.busy for w in rest)
    if average > 0.45 * slow.busy:
        return None
    busy = f"process {slow.pid} is busy {percent(slow.busy)} of the time, the others {percent(average)}"
    seen = (
        waits,
        Observation("busy_per_worker", ", ".join(percent(w.busy) for w in workers), STACKS),
        *at_sites(slow.sites, watch, "slow_worker_spends_it_at"),
        estimated(min(without(waiting), slow.busy / max(_mean(w.busy for w in workers), 0.05))),
    )
    title = f"One loader worker holds up the others: {busy}"
    return finding("slow_worker", lost=waiting, sure=0.75, title=title, evidence=seen)


def _slow_storage(
    job: JobShares, workers: list[WorkerShares], waiting: float, seen: tuple[Observation, ...], storage: float
) -> Finding:
    kinds = sorted({kind for w in workers for kind in w.storage_kinds[:2]})
    read = sum(w.track.read_bytes for w in workers if isinstance(w.track.read_bytes, int)) / job.seconds
    title = f"{percent(waiting)} of the time training waits for data, and the loader waits for storage"
    evidence = (
        *seen,
        Observation("workers_wait_for_storage", f"{percent(storage)} of the time in {', '.join(kinds[:4])}", PROC),
        Observation("read_from_disk", f"{read / 1e6:.1f} MB/s", PROC),
        Observation("workers_cpu", f"{sum(w.cpu for w in workers):.1f} cores", PROC),
        estimated(without(waiting)),
    )
    more = f"use more workers (try num_workers={round(2 * job.num_workers)}), which cost no CPU while they wait"
    copy = "Copy the data to a local NVMe disk or to memory"
    fix = (
        do(f"{copy}, or pack small files into large ones that are read in order."),
        do(f"Hide the waiting until then: {more}."),
    )
    return finding("slow_storage", lost=waiting, sure=0.7, title=title, evidence=evidence, fix=fix)


def _too_many(job: JobShares, waiting: float, seen: tuple[Observation, ...]) -> Finding:
    queued = percent(_mean(w.queued for w in job.workers))
    title = f"{job.num_workers:.0f} loader workers share {job.cpus:g} CPUs and slow each other down"
    seen = (*seen, _cpus(job), Observation("workers_wait_for_a_cpu", f"{queued} of the time", PROC))
    fix = (do(f"Use as many workers as CPUs: num_workers={max(1, int(job.cpus))}."),)
    return finding("too_many_workers", lost=waiting, sure=0.75, title=title, evidence=seen, fix=fix)


def _decode_bound(job: JobShares, lead: RankShares, seen: tuple[Observation, ...]) -> Finding:
    lost = lead.share(*DATA)
    saturates = f"decoding saturates the {job.cpus:g} CPUs: more workers cannot help"
    bound = Observation("upper_bound_of_gain", f"{without(lost):.2f}x if data cost nothing", MODEL)
    title = f"{percent(lost)} of the time is spent on data, and {saturates}"
    return finding("decode_bound", lost=lost, title=title, evidence=(*seen, bound))


def _unexplained_wait(waiting: float, seen: tuple[Observation, ...], lead: RankShares) -> Finding | Skip:
    # receiving a batch takes a CPU at both ends, so others lengthen this wait as much as the main thread's work
    if waiting / crowd_stretch(lead) < WORTH_TELLING:
        lengthened = f"other processes lengthen it {crowd_stretch(lead):.1f} times"
        return Skip(f"waiting for data takes {percent(waiting)} of the time, and {lengthened}")
    title = f"{percent(waiting)} of the time training waits for data, though the workers are not busy"
    receiving = Observation("receiving_batches", percent(lead.share(Phase.DATA_RECEIVE)), STACKS)
    seen = (*seen, receiving, estimated(without(waiting)))
    fix = (do("Let workers run further ahead: prefetch_factor=4; and pass fewer, larger tensors per batch."),)
    return finding("dataloader_bottleneck", lost=waiting, sure=0.5, title=title, evidence=seen, fix=fix)


def _cpus(job: JobShares) -> Observation:
    text = f"{job.cpu_used:.1f} used by the job of {job.cpus:g}, {job.others_used:.1f} by others"
    return Observation("cpus", text, PROC)


def _workers(job: JobShares, plan: LoaderPlan, number: int) -> str:
    """The setting and the limit with it; if it has more workers than CPUs, fewer first, and why more may help."""
    limit = f"{_SETTING.format(number)}. Then the limit is {plan.limit}."
    if number <= job.cpus:
        return limit
    warns = (
        f" PyTorch warns about more workers than CPUs ({job.cpus:g}), but here they help: loading waits "
        f"{percent(plan.waits)} of its time and needs no CPU while it waits."
    )
    if not plan.ladder:
        return limit + warns
    (first, gain), *between = plan.ladder
    steps = "".join(f"{n}, " for n, _ in between[:-1])
    return (
        f"{_SETTING.format(first)}, about {gain:.1f} times as fast. More may help, "
        f"up to about {plan.gain:.1f} times: try {steps}num_workers={plan.ladder[-1][0]}.{warns}"
    )


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
    def judge(watch: Watch, job: JobShares) -> Finding | Skip | None:
        verdict = judge_loader(watch, job)
        return verdict if isinstance(verdict, Skip) or (verdict is not None and verdict.id == name) else None

    return watched(name, judge)


FINDERS = tuple(map(_finder, _NAMES))
