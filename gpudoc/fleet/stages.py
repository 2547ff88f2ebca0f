"""The stages of a run, their order and durations; each consists of orders that rank 0 gives to all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpudoc.bench.collective import OPERATIONS
from gpudoc.errors import GpudocError
from gpudoc.fleet.child import SIZES
from gpudoc.fleet.conductor import Conductor, Exchange, Group
from gpudoc.fleet.ledger import Circumstances
from gpudoc.fleet.record import Parameter, Spot
from gpudoc.fleet.roster import Unit
from gpudoc.units import MIB

# with this many partners each, a bad end can be distinguished from a bad link
MOST_PARTNERS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of each stage."""

    alone: float
    together: float
    steps: float
    digests: float
    sweep: float
    pair: float
    host: float


QUICK = Times(alone=4.0, together=6.0, steps=2.0, digests=2.0, sweep=8.0, pair=1.0, host=4.0)
FULL = Times(alone=12.0, together=30.0, steps=6.0, digests=12.0, sweep=40.0, pair=3.0, host=12.0)


# large enough that every multiprocessor has work
DIGEST_SIZE, CPU_DIGEST_SIZE = 4096, 512
CASES = {"copies": "h2d", "device_memory": "device_copy", "matmul": "matmul"}
CPU_CASES = {"memory": "memory_copy", "matmul": "cpu_matmul"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """The plan of one run: times, names of stages (empty: all), and the kind of devices."""

    times: Times
    on_gpu: bool
    only: tuple[str, ...] = ()

    def wants(self, name: str) -> bool:
        """Whether a stage must run: `only` names it or one of its cases, or is empty."""
        return not self.only or name in self.only or (name == "cases" and bool(set(self.only) & {*CASES, *CPU_CASES}))

    @property
    def cases(self) -> Mapping[str, str]:
        """Bench's cases that every device runs, with one row of each: a device without a result is noted there."""
        known = CASES if self.on_gpu else CPU_CASES
        named = {case: row for case, row in known.items() if case in self.only}
        return named or known

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of collectives; without GPUs larger sizes do not fill a network better."""
        return SIZES if self.on_gpu else tuple(size for size in SIZES if size <= 16 * MIB)

    @property
    def pair_size(self) -> int:
        """Bytes that fill a link."""
        return 128 * MIB if self.on_gpu else 2 * MIB

    @property
    def digest_size(self) -> int:
        """Rows of the square products."""
        return DIGEST_SIZE if self.on_gpu else CPU_DIGEST_SIZE


Run = Callable[[Conductor, Scheme], None]


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the run: its name for --only, its description, its approximate duration, and its function."""

    name: str
    meaning: str
    seconds: float
    run: Run


def all_stages(scheme: Scheme, most_units: int) -> tuple[Stage, ...]:
    """The stages of a run in their order; `most_units` is the number of units on the fullest node."""
    times = scheme.times
    stages = (
        Stage("doctor", "doctor on every node", 5.0, describe),
        Stage("host", "loader and storage of every node", times.host, measure_hosts),
        Stage("cases", "every device alone", times.alone * most_units, measure_alone),
        Stage("cases", "all devices at once", times.together, measure_together),
        Stage("steps", "a training step on every device", times.steps, measure_steps),
        Stage("digests", "the same products everywhere, under heat", times.digests, measure_digests),
        Stage("collectives", "collectives by size", 3 * times.sweep, measure_collectives),
        Stage("pairs", "halves and pairs", (MOST_PARTNERS + 1) * times.pair, measure_pairs),
        Stage("clock", "clocks", 1.0, compare_clocks),
    )
    # without a description there are no places to judge
    return tuple(stage for stage in stages if stage.name == "doctor" or scheme.wants(stage.name))


STAGES = ("host", "cases", "steps", "digests", "collectives", "pairs", "clock")


def check_names(only: Sequence[str]) -> None:
    """Raises GpudocError for a stage that does not exist."""
    known = tuple(dict.fromkeys((*STAGES, *CASES, *CPU_CASES)))
    for name in only:
        if name not in known:
            raise GpudocError(f"no such part of bench --across: {name}", hint=f"--only {','.join(known)}")


def describe(conductor: Conductor, _: Scheme) -> None:
    """Every process describes its GPUs; the first of each node also its software and doctor's findings."""
    roster = conductor.roster
    leaders = set(roster.leaders())
    orders = {rank: {"do": "node", "leads": rank in leaders} for rank in roster.ranks()}
    for rank, reply in conductor.order(orders, 30.0, "describing itself").items():
        own = [unit for unit in roster.units() if unit.rank == rank]
        node = roster.nodes.index(roster.node_of(rank))
        conductor.keep_description(own, node, reply, leads=rank in leaders)


def measure_hosts(conductor: Conductor, scheme: Scheme) -> None:
    """Measure loader and storage in the first process of each node."""
    seconds = scheme.times.host
    orders = [
        (Unit(Spot(number), node.ranks[0], "cpu"), {"do": "cases", "cases": ["loader", "folder"], "seconds": seconds})
        for number, node in enumerate(conductor.roster.nodes)
        if node.ranks and conductor.takes(number)
    ]
    conductor.measure(orders, ("loader_batch",), Circumstances(scope="node"), seconds, "measuring the loader")


def measure_alone(conductor: Conductor, scheme: Scheme) -> None:
    """Measure one device per node at a time: its speed while no other device takes power or cooling."""
    turns: dict[int, list[Unit]] = {}
    for unit in conductor.units():
        turns.setdefault(unit.spot.gpu, []).append(unit)
    for turn in sorted(turns):
        run_cases(conductor, scheme, turns[turn], Circumstances(load="alone"), scheme.times.alone)


def measure_together(conductor: Conductor, scheme: Scheme) -> None:
    """Measure all devices at once, as a job uses them."""
    run_cases(conductor, scheme, conductor.units(), Circumstances(load="together"), scheme.times.together)


def run_cases(
    conductor: Conductor, scheme: Scheme, units: Iterable[Unit], setting: Circumstances, seconds: float
) -> None:
    """Run bench's cases on these units at once."""
    order = {"do": "cases", "cases": list(scheme.cases), "seconds": seconds}
    what = "measuring one device of each node" if setting.load == "alone" else "measuring all devices at once"
    wanted = [(unit, order) for unit in units if not unit.gone]
    conductor.measure(wanted, tuple(scheme.cases.values()), setting, seconds, what)


def measure_steps(conductor: Conductor, scheme: Scheme) -> None:
    """Run the quickstart's step on every device at once."""
    order = {"do": "steps", "seconds": scheme.times.steps}
    wanted = [(unit, order) for unit in conductor.units()]
    setting = Circumstances(load="together")
    conductor.measure(wanted, ("train_step",), setting, scheme.times.steps, "training the quickstart")


def measure_digests(conductor: Conductor, scheme: Scheme) -> None:
    """Run deterministic products on every device at once, immediately after other load."""
    order = {"do": "digests", "size": scheme.digest_size, "seconds": scheme.times.digests}
    wanted = [(unit, order) for unit in conductor.units()]
    setting = Circumstances(load="together")
    conductor.measure(wanted, (), setting, scheme.times.digests, "comparing products bit by bit")


def measure_collectives(conductor: Conductor, scheme: Scheme) -> None:
    """Run collectives within every node, over rails, and over all; equal groups only once."""
    sweep = Exchange(operations=OPERATIONS, sizes=scheme.sizes, seconds=scheme.times.sweep)
    units = conductor.units()
    nodes, rails = by(units, lambda unit: unit.spot.node), by(units, lambda unit: unit.spot.gpu)
    inside = [Group(tuple(group), (Spot(number),)) for number, group in nodes.items() if len(group) > 1]
    if inside:
        conductor.exchange(inside, sweep, Circumstances(scope="node", load="together"), "collectives within nodes")
    across = [Group(tuple(group), spots(group)) for group in rails.values() if len(group) > 1]
    if len(across) > 1:
        conductor.exchange(across, sweep, Circumstances(scope="rail", load="together"), "collectives over rails")
    if len(nodes) > 1 and conductor.attempt == 1:
        everybody = Group(tuple(units), tuple(Spot(number) for number in nodes))
        setting = Circumstances(scope="group", load="together", parameters={"part": "all"})
        conductor.exchange([everybody], sweep, setting, "collectives over all nodes")


def measure_pairs(conductor: Conductor, scheme: Scheme) -> None:
    """Measure halves of the fleet, then pairs along each rail with several partners per unit, to find a bad link."""
    units = conductor.units()
    what = Exchange(operations=("all_reduce",), sizes=(scheme.pair_size,), seconds=scheme.times.pair)
    nodes = by(units, lambda unit: unit.spot.node)
    rows = list(nodes.values()) if len(nodes) > 1 else [[unit] for unit in units]
    middle = len(rows) // 2
    halves = [[unit for row in half for unit in row] for half in (rows[:middle], rows[middle:])]
    if middle > 1:
        parts: dict[str, Parameter] = {"part": "half"}
        setting = Circumstances(scope="group", load="together", parameters=parts)
        places = [tuple(dict.fromkeys(Spot(u.spot.node) if len(nodes) > 1 else u.spot for u in h)) for h in halves]
        groups = [Group(tuple(half), at) for half, at in zip(halves, places, strict=True)]
        conductor.exchange(groups, what, setting, "all-reduce over halves")
    setting = Circumstances(scope="pair", load="together")
    for couples in rounds(len(rows)):
        pairs = [(one, other) for a, b in couples for one, other in zip(rows[a], rows[b], strict=False)]
        groups = [Group(pair, spots(pair)) for pair in pairs if not any(unit.gone for unit in pair)]
        if groups:
            conductor.exchange(groups, what, setting, "all-reduce between pairs")


def rounds(count: int, most: int = MOST_PARTNERS) -> list[list[tuple[int, int]]]:
    """Rounds of disjoint pairs of 0 to count - 1 in which no two meet twice; at most `most` rounds.

    The circle method of tournaments: one number stays, the others move by one place.
    """
    ring = list(range(count + count % 2))
    found = []
    for _ in range(min(most, len(ring) - 1)):
        couples = zip(ring[: len(ring) // 2], reversed(ring[len(ring) // 2 :]), strict=True)
        found.append([(a, b) for a, b in couples if a < count and b < count])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return found


def compare_clocks(conductor: Conductor, _: Scheme) -> None:
    """Compare the clocks of all nodes when they leave a barrier together."""
    first = by(conductor.units(), lambda unit: unit.spot.node)
    units = tuple(group[0] for group in first.values())
    if len(units) > 1:
        what = Exchange(operations=("clock",), seconds=1.0)
        conductor.exchange([Group(units, spots(units))], what, Circumstances(), "comparing clocks")


def by(units: Iterable[Unit], key: Callable[[Unit], int]) -> Mapping[int, list[Unit]]:
    """The units in groups, in the order of first occurrence."""
    found: dict[int, list[Unit]] = {}
    for unit in units:
        found.setdefault(key(unit), []).append(unit)
    return found


def spots(units: Iterable[Unit]) -> tuple[Spot, ...]:
    """The places of the units."""
    return tuple(unit.spot for unit in units)
