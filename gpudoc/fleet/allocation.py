"""The entry point: one process of an allocation finds the others and measures with them; rank 0 gets the record."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gpudoc.bench.target import BenchTarget, find_target
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.fleet import stages
from gpudoc.fleet.conductor import Conductor
from gpudoc.fleet.ledger import Ledger
from gpudoc.fleet.meeting import JOIN_S, Meeting, Message, open_store
from gpudoc.fleet.member import Member, hello
from gpudoc.fleet.place import find_place
from gpudoc.fleet.record import FleetRecord
from gpudoc.fleet.remeasurement import measure_again
from gpudoc.fleet.roster import Roster, make_roster
from gpudoc.process.seal import seal_here
from gpudoc.progress import SILENT, Progress
from gpudoc.units import format_count

# the time for the others to confirm the end
_FAREWELL_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AcrossOptions:
    """What the user asked for; `device` is auto, cpu or cuda, `shared` goes on although others use the GPUs."""

    device: str = "auto"
    only: tuple[str, ...] = ()
    quick: bool = False
    data: Path | None = None
    shared: bool = False

    @staticmethod
    def of(device: str, only: str, quick: bool, data: Path | None, shared: bool) -> AcrossOptions:
        """The options, with `only` split at its commas."""
        names = tuple(name.strip() for name in only.split(",") if name.strip())
        return AcrossOptions(device=device, only=names, quick=quick, data=data, shared=shared)


def check(options: AcrossOptions) -> None:
    """Raises GpudocError (exit 2) for options that cannot be measured, before anything starts."""
    stages.check_names(options.only)
    if ":" in options.device:
        raise GpudocError(
            f"--across measures all GPUs, but --device {options.device} names one",
            hint="leave --device out; CUDA_VISIBLE_DEVICES hides some",
        )
    if options.data is not None and not options.data.is_dir():
        raise GpudocError(f"not a folder: {options.data}", hint="--data DIR: name a folder that every node can see")


def run(options: AcrossOptions, progress: Progress = SILENT) -> FleetRecord | None:
    """Measure with all processes of this allocation; the record on rank 0, None on the others.

    Ctrl+C keeps the measurements so far. GpudocError (exit 1) if the others cannot be reached.
    """
    check(options)
    place = find_place()
    target = find_target(options.device)
    store, port = open_store(place)
    meeting = Meeting(store, replace(place, port=port), seal_here())
    meeting.begin()
    try:
        meeting.say(f"hello/{place.rank}", hello(target, place.host))
        member = Member(meeting, target, options.data)
        if place.rank:
            member.follow()
            meeting.say(f"farewell/{place.rank}", {})
            return None
        return _lead(options, meeting, target, member, progress)
    finally:
        meeting.end()


def _lead(
    options: AcrossOptions, meeting: Meeting, target: BenchTarget, member: Member, progress: Progress
) -> FleetRecord:
    place = meeting.place
    ledger = Ledger(engine=place.engine, mode="quick" if options.quick else "full", ranks=place.world)
    roster = Roster([])
    # rank 0 also measures like any other rank; in a thread, so that its children live as long as this process
    following = threading.Thread(target=_quietly(member.follow), daemon=True)
    following.start()
    try:
        progress.say(target.said)
        roster = _meet(meeting, hello(target, place.host), progress)
        for sentence in _beside_others(roster, shared=options.shared):
            progress.say(sentence)
        conductor = Conductor(meeting, roster, ledger, progress)
        _conduct(conductor, options, progress)
    except KeyboardInterrupt:
        ledger.interrupted = True
    finally:
        with contextlib.suppress(GpudocError, KeyboardInterrupt):
            meeting.say("end", {})
            others = {rank: "farewell" for rank in roster.ranks() if rank}
            meeting.gather(others, _FAREWELL_S, lambda _: None)
        following.join(_FAREWELL_S)
        member.end()
    return ledger.record(roster)


def _meet(meeting: Meeting, own: Message, progress: Progress) -> Roster:
    """Wait for the others' greetings, and tell each its part."""
    place = meeting.place

    def tick(awaited: int) -> None:
        progress.advance(0.0, 1.0, f"waiting for {awaited} of {place.world} processes")

    keys = dict.fromkeys(range(place.world), "hello")
    told = meeting.gather(keys, JOIN_S, tick)
    roster = make_roster(told, place.world, str(own["version"]), place.nodes)
    units = roster.units()
    hosts = sum(1 for node in roster.nodes if node.units)
    kind = "GPU" if own["kind"] == "cuda" else "CPU rank"
    progress.say(f"{format_count(len(units), kind)} on {format_count(hosts, 'node')}")
    for node in roster.nodes:
        if node.missing is not None:
            progress.say(f"{node.host}: {node.missing.because}; the others continue without it")
    if not units:
        raise GpudocError("no process has a device to measure", hint="gpudoc doctor", exit_code=ExitCode.BAD_ANSWER)
    return roster


def _beside_others(roster: Roster, *, shared: bool) -> list[str]:
    """Messages about other users of the GPUs, one line per node; GpudocError (exit 1) naming all unless `shared`.

    One refusal for all nodes: other work on a node during the measurement makes that node look slow.
    """
    busy = {node.host: said for node in roster.nodes if (said := "; ".join(dict.fromkeys(node.sharers)))}
    if busy and not shared:
        raise GpudocError(
            "; ".join(f"{host}: {said}" for host, said in busy.items()),
            hint="leave these nodes out, or add --shared to measure anyway; other processes then lower the figures",
            exit_code=ExitCode.BAD_ANSWER,
        )
    return [f"! {host}: {said}; its figures are valid only while they run" for host, said in busy.items()]


def _conduct(conductor: Conductor, options: AcrossOptions, progress: Progress) -> None:
    roster = conductor.roster
    units = roster.units()
    scheme = stages.Scheme(
        times=stages.QUICK if options.quick else stages.FULL,
        on_gpu=units[0].device != "cpu",
        only=options.only,
    )
    devices = {rank: [unit.device for unit in units if unit.rank == rank] for rank in roster.ranks()}
    beside = {rank: len(node.ranks) for node in roster.nodes for rank in node.ranks}
    parts = {rank: {"do": "roster", "devices": devices[rank], "beside": beside[rank]} for rank in roster.ranks()}
    conductor.order(parts, 1.0, "running its part")
    plan = stages.all_stages(scheme, max(len(node.units) for node in roster.nodes))
    conductor.total_s = sum(stage.seconds for stage in plan)
    for stage in plan:
        progress.say(f"{stage.meaning} ...")
        stage.run(conductor, scheme)
    measure_again(conductor, scheme, progress)


def _quietly(follow: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        # rank 0 is this process: its other thread reports the error
        with contextlib.suppress(GpudocError):
            follow()

    return run
