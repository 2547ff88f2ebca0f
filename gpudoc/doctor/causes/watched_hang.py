"""A running job in which nothing moves, or that goes round in one place: where it stands, how long, and for what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpudoc.doctor.live.device import summarise_devices
from gpudoc.doctor.live.phases import TRAINING, Phase
from gpudoc.doctor.live.say import PROC, STACKS, finding, place
from gpudoc.doctor.live.shares import JobShares, RankShares, Site, summarise
from gpudoc.doctor.model import Evidence, Finder, Finding, Observation, Remedy, Skip
from gpudoc.facts.live.stillness import STILL_BYTES_PER_S, STILL_CORES
from gpudoc.facts.model import Absent
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.process import Watch
from gpudoc.units import format_bytes

HUNG_AFTER_S = 4.0
# what the main thread runs or wants to run; in less time a first batch is prepared
BUSY_AFTER_S, BUSY_SHARE, BUSY_CORES = 10.0, 0.9, 0.5
GPU_IDLE = 0.05
# a thread that waits in vain is woken by time limits only, each some seconds long
STILL_WAKES_PER_S = 2.0
_NETWORK = Pattern(
    r"/lib/python3[^/]*/(socket|ssl|http/client|urllib/request)\.py$|/(urllib3|requests|httpx|httpcore)/"
)


_NEVER = Pattern(r"(?!)")


@dataclass(frozen=True, slots=True)
class _Wait:
    """Something to wait for in vain: how its stack or its line looks, and what to do about it."""

    what: str
    fix: str
    file: Pattern
    text: Pattern

    def fits(self, rank: RankShares, text: str) -> bool:
        """Whether a frame of the last stack, or the text of the user's line, shows this wait."""
        return any(self.file.search(frame.file) for frame in rank.last_stack) or bool(self.text.search(text))


# in this order: a loader's queue is a queue, too, and each queue waits for a lock
_WAITS = (
    _Wait(
        "it waits for input that nobody types",
        "Give the answer as an option or in the environment; what asks for a login has an offline mode, as "
        "WANDB_MODE=offline.",
        Pattern(r"/lib/python3[^/]*/getpass\.py$"),
        Pattern(r"\binput\(|sys\.stdin\b|\bgetpass\("),
    ),
    _Wait(
        "it waits in a collective for ranks that do not come",
        "Ranks in different collectives, or one that left the loop early, hang like this: make all of them call the "
        "same ones.",
        Pattern(r"torch/distributed/"),
        Pattern(r"\binit_process_group\(|\ball_reduce\(|\bbarrier\("),
    ),
    _Wait(
        "it waits for a loader worker that makes no batch",
        "See what its workers wait for; num_workers=0 shows whether the data set itself stands still. A lock that was "
        "held at the fork stays held in every worker.",
        Pattern(r"torch/utils/data/dataloader\.py$"),
        _NEVER,
    ),
    _Wait(
        "it waits for an answer from the network",
        "Set a time limit (timeout=30), and look whether the server can be reached from here; what is on disk already "
        "needs none (HF_HUB_OFFLINE=1).",
        _NETWORK,
        Pattern(r"\.(recv|accept|connect)\(|requests\.\w+\(|urlopen\("),
    ),
    _Wait(
        "it waits for an item of a queue that nobody fills",
        "See whether the thread or process that fills it still lives; get(timeout=60) turns the wait into an error.",
        Pattern(r"/lib/python3[^/]*/(queue|multiprocessing/queues)\.py$"),
        Pattern(r"(queue|\bq)\w*\.get\("),
    ),
    _Wait(
        "it waits for a thread or process that does not end",
        "See what that one waits for; join(timeout=60) turns the wait into an error.",
        Pattern(r"/lib/python3[^/]*/(subprocess|multiprocessing/popen_\w+)\.py$"),
        Pattern(r"\.(join|wait|communicate)\("),
    ),
    _Wait(
        "it waits for a lock that nobody lets go",
        "See which thread holds it: one that took it twice, or two that took two locks in different orders.",
        Pattern(r"/lib/python3[^/]*/threading\.py$"),
        Pattern(r"\.acquire\(|^with \w*(lock|mutex|cond|sem)"),
    ),
    _Wait("it sleeps", "See what it sleeps for.", _NEVER, Pattern(r"\bsleep\(")),
)
_UNKNOWN = _Wait("it waits", "See what its other threads wait for.", _NEVER, _NEVER)


def find_hang(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Nothing moves: no CPU used, no bytes moved, no GPU at work, and every rank in one place to the watch's end."""
    watch = evidence.watch
    if watch is None:
        return
    job = summarise(watch)
    if not job.has_stacks:
        stacks = watch.stacks
        yield Skip(f"stacks: {stacks.reason}" if isinstance(stacks, Absent) else "no stacks")
        return
    if (watch.ended and not watch.interrupted) or not job.ranks:
        return
    busy = _busy(watch, job)
    if busy is not None:
        yield busy
        return
    still_s = min(rank.unmoved for rank in job.ranks) * watch.seconds
    if still_s < max(HUNG_AFTER_S, 0.4 * watch.seconds) or _used_lately(watch, still_s - 1) > STILL_CORES:
        return
    moving = _what_moves(watch, job, still_s - 1)
    yield Skip(moving) if moving else _hung(watch, job, still_s)


def _hung(watch: Watch, job: JobShares, still_s: float) -> Finding:
    late = _whom_others_wait_for(job)
    stands = late or job.ranks[0]
    wait = next((wait for wait in _WAITS if wait.fits(stands, _text_of(stands))), _UNKNOWN)
    where = [
        f"rank {r.rank or 0}: {_top(r, watch)}{'  <- the others wait for it' if r is late else ''}" for r in job.ranks
    ]
    whole = still_s > 0.95 * watch.seconds
    # a watch that found it still says nothing of the time before, unless that was seen too
    least = "at least " if whole and not watch.still_before_s else ""
    lasted_s = still_s + (watch.still_before_s if whole else 0.0)
    why = f"the other ranks wait for rank {late.rank}; there {wait.what}" if late is not None else wait.what
    asleep = all(r.share(Phase.SLEEP) > 0.9 for r in job.ranks) and wait in (_UNKNOWN, _WAITS[-1])
    return finding(
        "job_hung",
        lost=1.0 if not asleep else 0.0,
        sure=0.6 if asleep else 0.9,
        title=f"Nothing has moved for {least}{lasted_s:.0f} s: {why}{_at(stands, watch)}",
        evidence=(
            Observation("cpu_used", f"{_used_lately(watch, still_s - 1):.3f} cores in that time", PROC),
            *(Observation("stack", text, STACKS) for text in where[:8]),
            *_workers(watch, job),
        ),
        fix=(
            Remedy(say=wait.fix),
            Remedy(say="See every thread of it.", run=f"py-spy dump --subprocesses --pid {watch.pid}"),
        ),
    )


def _busy(watch: Watch, job: JobShares) -> Finding | None:
    """A main thread that computes in one place of the user's and came to no training step in the watch.

    A place is a function, or a line: a generator expression is a function of its own on the line of its loop.
    """
    lead = job.ranks[0]
    python = lead.sites.get(Phase.PYTHON, ())
    if len(job.ranks) > 1 or watch.seconds < BUSY_AFTER_S or not python or lead.cpu_wanted < BUSY_CORES:
        return None
    one_place = 1 in (
        len({(site.frame.file, site.frame.function) for site in python}),
        len({(site.frame.file, site.frame.line) for site in python}),
    )
    if not one_place or lead.share(Phase.PYTHON) < BUSY_SHARE or lead.share(*TRAINING, Phase.COLLECTIVE) > 0:
        return None
    site, still_s = python[0], lead.share(Phase.PYTHON) * watch.seconds
    where = f"{place(site.frame, watch)} in {site.frame.function}()"
    return finding(
        "job_hung",
        lost=0.0,
        sure=0.55,
        title=f"Busy at {where} for {still_s:.0f} s without a training step: an endless loop, or a long calculation",
        evidence=(
            Observation("main_thread_cpu", f"{lead.cpu:.2f} cores", PROC),
            Observation("stack", f"{place(site.frame, watch)}  {site.text}".rstrip(), STACKS),
        ),
        fix=(
            Remedy(say=f"See whether the loop at {place(site.frame, watch)} can end: print what its condition reads."),
            Remedy(say="See every thread of it.", run=f"py-spy dump --locals --pid {watch.pid}"),
        ),
    )


def _what_moves(watch: Watch, job: JobShares, seconds: float) -> str:
    """What goes on in a job that uses no CPU: bytes, answers from the network, kernels; '' when nothing does."""
    moved = sum(_added(track.moved, watch.seconds - seconds) for track in watch.processes)
    if moved > STILL_BYTES_PER_S * seconds:
        return f"it stands in one place, but moves {format_bytes(moved / seconds)} per second"
    tracks = {rank.pid: rank.track for rank in job.ranks}
    for rank in job.ranks:
        track = tracks[rank.pid]
        woken = 0.0 if track is None else _added(track.wakes, watch.seconds - seconds)
        if woken > STILL_WAKES_PER_S * seconds and any(_NETWORK.search(f.file) for f in rank.last_stack[-3:]):
            return f"it receives from the network, {woken / seconds:.0f} times per second"
    devices = summarise_devices(watch)
    # a collective that waits for an absent rank keeps the GPU at 100 %
    together = any(rank.share(Phase.COLLECTIVE, Phase.SYNC) > 0.5 for rank in job.ranks) and len(job.ranks) > 1
    ours = () if isinstance(devices, Absent) else [device for device in devices if device.is_ours]
    if not together and any(device.busy > GPU_IDLE for device in ours):
        return "it waits for its GPU, which works"
    return ""


def _added(series: tuple[tuple[float, int], ...], begin: float) -> float:
    late = [value for time_s, value in series if time_s >= begin]
    return float(late[-1] - late[0]) if late else 0.0


def _used_lately(watch: Watch, seconds: float) -> float:
    """Cores that the job used on average in the last `seconds`."""
    total = 0.0
    for track in watch.processes:
        late = [(t, used) for t, used in track.cpu if t >= watch.seconds - seconds]
        total += late[-1][1] - late[0][1] if len(late) > 1 else 0.0
    return total / max(seconds, 1e-9)


def _whom_others_wait_for(job: JobShares) -> RankShares | None:
    outside = [r for r in job.ranks if r.share(Phase.COLLECTIVE) < 0.5]
    return outside[0] if len(outside) == 1 and len(job.ranks) > 1 else None


def _site(rank: RankShares) -> Site | None:
    """The user's line on which the rank stands at the end."""
    return next(iter(rank.sites.get(rank.timeline[-1], ())), None)


def _text_of(rank: RankShares) -> str:
    site = _site(rank)
    return site.text if site is not None else ""


def _at(rank: RankShares, watch: Watch) -> str:
    site = _site(rank)
    return f", at {place(site.frame, watch)}" if site is not None else ""


def _top(rank: RankShares, watch: Watch) -> str:
    site = _site(rank)
    last = rank.last_stack[-1].function if rank.last_stack else "unknown"
    where = f", from {place(site.frame, watch)} {site.text}" if site is not None else ""
    return f"{rank.timeline[-1].value} in {last}(){where}"


def _workers(watch: Watch, job: JobShares) -> tuple[Observation, ...]:
    """The lines on which loader workers stand, where the main process waits for them."""
    lines = [f"worker {w.pid}: {place(w.sites[0].frame, watch)} {w.sites[0].text}" for w in job.workers if w.sites]
    return tuple(Observation("worker", line, STACKS) for line in lines[:3])


FINDERS = (Finder(id="job_hung", find=find_hang, reads="watch"),)
