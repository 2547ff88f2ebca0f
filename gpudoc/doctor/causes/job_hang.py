"""A running job that stands still or loops in one place: where it is, for how long, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.doctor.live.device import summarise_devices
from gpudoc.doctor.live.finders import watched
from gpudoc.doctor.live.phases import TRAINING, Phase
from gpudoc.doctor.live.say import PROC, STACKS, finding, place
from gpudoc.doctor.live.shares import JobShares, RankShares, Site
from gpudoc.doctor.model import Finding, Observation, Skip
from gpudoc.doctor.remedies import do
from gpudoc.facts.live.stillness import STILL_BYTES_PER_S, STILL_CORES
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Frame, Watch
from gpudoc.knowledge.stacks import stack_rows
from gpudoc.units import format_bytes

HUNG_AFTER_S = 4.0
# limits for a busy main thread: the time watched (a first batch takes less), its share of the time, its CPU demand
BUSY_AFTER_S, BUSY_SHARE, BUSY_CORES = 10.0, 0.9, 0.5
GPU_IDLE = 0.05
# only timeouts of some seconds each wake a thread that waits in vain
STILL_WAKES_PER_S = 2.0
# states that the program may intend
_MAY_BE_MEANT = ("it waits", "it sleeps")


def judge_hang(watch: Watch, job: JobShares, ranks: Sequence[RankShares]) -> Finding | Skip | None:
    """Nothing moves: no CPU use, no bytes moved, no GPU at work, and every rank in one place until the watch's end."""
    if (watch.ended and not watch.interrupted) or not ranks:
        return None
    busy = _busy(watch, ranks)
    if busy is not None:
        return busy
    still_s = min(rank.unmoved for rank in ranks) * watch.seconds
    begin = watch.seconds - (still_s - 1)
    used = sum(_added(track.cpu, begin) for track in watch.processes) / max(still_s - 1, 1e-9)
    if still_s < max(HUNG_AFTER_S, 0.4 * watch.seconds) or used > STILL_CORES:
        return None
    moving = _what_moves(watch, ranks, still_s - 1)
    if moving:
        return Skip(moving)
    late = _whom_others_wait_for(ranks)
    stands = late or ranks[0]
    what, fix = _wait_of(stands)
    where = [f"rank {r.rank or 0}: {_top(r, watch)}{'  <- the others wait for it' if r is late else ''}" for r in ranks]
    whole = still_s > 0.95 * watch.seconds
    # if the job stood still for the whole watch, the time before is unknown unless it was seen too
    least = "at least " if whole and not watch.still_before_s else ""
    lasted_s = still_s + (watch.still_before_s if whole else 0.0)
    why = f"the other ranks wait for rank {late.rank}; there {what}" if late is not None else what
    asleep = all(r.share(Phase.SLEEP) > 0.9 for r in ranks) and what in _MAY_BE_MEANT
    at = "".join(f", at {place(site.frame, watch)}" for site in _site(stands))
    # the lines on which loader workers stand, if the main process waits for them
    workers = [f"worker {w.pid}: {place(w.sites[0].frame, watch)} {w.sites[0].text}" for w in job.workers if w.sites]
    title = f"Nothing has moved for {least}{lasted_s:.0f} s: {why}{at}"
    seen = (
        Observation("cpu_used", f"{used:.3f} cores in that time", PROC),
        *(Observation("stack", text, STACKS) for text in where[:8]),
        *(Observation("worker", text, STACKS) for text in workers[:3]),
    )
    steps = (do(fix), do("See all of its threads.", f"py-spy dump --subprocesses --pid {watch.pid}"))
    lost, sure = (0.0, 0.6) if asleep else (1.0, 0.9)
    return finding("job_hung", lost=lost, sure=sure, title=title, evidence=seen, fix=steps)


def _busy(watch: Watch, ranks: Sequence[RankShares]) -> Finding | None:
    """A main thread that computes in one place of the user's code and reached no training step in the watch.

    A place is a function, or a line: a generator expression is a separate function on the line of its loop.
    """
    lead, share = ranks[0], ranks[0].share(Phase.PYTHON)
    python = lead.sites.get(Phase.PYTHON, ())
    if len(ranks) > 1 or watch.seconds < BUSY_AFTER_S or not python or lead.cpu_wanted < BUSY_CORES:
        return None
    one_place = 1 in (
        len({(site.frame.file, site.frame.function) for site in python}),
        len({(site.frame.file, site.frame.line) for site in python}),
    )
    if not one_place or share < BUSY_SHARE or lead.share(*TRAINING, Phase.COLLECTIVE) > 0:
        return None
    where = place(python[0].frame, watch)
    busy = f"Busy at {where} in {python[0].frame.function}() for {share * watch.seconds:.0f} s"
    title = f"{busy} without a training step: an endless loop or a long computation"
    seen = (
        Observation("main_thread_cpu", f"{lead.cpu:.2f} cores", PROC),
        Observation("stack", f"{where}  {python[0].text}".rstrip(), STACKS),
    )
    steps = (
        do(f"See whether the loop at {where} can end: print what its condition reads."),
        do("See all of its threads.", f"py-spy dump --locals --pid {watch.pid}"),
    )
    return finding("job_hung", lost=0.0, sure=0.55, title=title, evidence=seen, fix=steps)


def _what_moves(watch: Watch, ranks: Sequence[RankShares], seconds: float) -> str:
    """The activity in a job that uses no CPU: bytes, answers from the network, kernels; '' if there is none."""
    begin = watch.seconds - seconds
    moved = sum(_added(track.moved, begin) for track in watch.processes)
    if moved > STILL_BYTES_PER_S * seconds:
        return f"it stays at one place, but moves {format_bytes(moved / seconds)} per second"
    for rank in ranks:
        woken = _added(rank.track.wakes, begin) if rank.track is not None else 0.0
        if woken > STILL_WAKES_PER_S * seconds and any(map(_of_network, rank.last_stack[-3:])):
            return f"it receives from the network, {woken / seconds:.0f} times per second"
    devices = summarise_devices(watch)
    # a collective that waits for an absent rank keeps the GPU at 100 %
    together = any(rank.share(Phase.COLLECTIVE, Phase.SYNC) > 0.5 for rank in ranks) and len(ranks) > 1
    ours = () if isinstance(devices, Absent) else [device for device in devices if device.is_ours]
    if not together and any(device.busy > GPU_IDLE for device in ours):
        return "it waits for its GPU, which works"
    return ""


def _added(series: Sequence[tuple[float, float]], begin: float) -> float:
    """The increase of a counter after `begin`."""
    late = [value for time_s, value in series if time_s >= begin]
    return late[-1] - late[0] if late else 0.0


def _of_network(frame: Frame) -> bool:
    return any(row.fits_frame(frame.file) for row in stack_rows("waits") if "network" in row.says)


def _wait_of(rank: RankShares) -> tuple[str, str]:
    """The thing a rank waits for, by a frame of its last stack or the text of the user's line, and the fix."""
    for row in stack_rows("waits"):
        shown = (row.fits_line(site.text) for site in _site(rank))
        if any(row.fits_frame(frame.file) for frame in rank.last_stack) or any(shown):
            return str(row.says["what"]), str(row.says["fix"])
    return "it waits", "See what its other threads wait for."


def _whom_others_wait_for(ranks: Sequence[RankShares]) -> RankShares | None:
    outside = [r for r in ranks if r.share(Phase.COLLECTIVE) < 0.5]
    return outside[0] if len(outside) == 1 and len(ranks) > 1 else None


def _site(rank: RankShares) -> Sequence[Site]:
    """The user's line at which the rank is at the end; empty if it is at none."""
    return rank.sites.get(rank.timeline[-1], ())[:1]


def _top(rank: RankShares, watch: Watch) -> str:
    last = rank.last_stack[-1].function if rank.last_stack else "unknown"
    where = "".join(f", from {place(site.frame, watch)} {site.text}" for site in _site(rank))
    return f"{rank.timeline[-1].value} in {last}(){where}"


FINDERS = (watched("job_hung", judge_hang),)
