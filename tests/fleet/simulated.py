"""A fleet that does not exist: healthy spread, planted faults, and the second measurement of what looked odd.

Each part of each GPU has one factor of its own that all figures of it share in part (`shared`), each figure one more,
every sample noise. Used by the tests and by campaigns/fleet_power.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gpudoc.fleet.record import Digest, FleetGpu, FleetNode, FleetReading, FleetRecord, Measure, Spot
from gpudoc.fleet.scores import SPREADS
from gpudoc.fleet.verdict import Suspect, suspects

MODEL = "NVIDIA H100 80GB HBM3"
PEAKS = {"fp32": 50.0, "tf32": 380.0, "fp16": 690.0, "bf16": 700.0}
NOISE = 0.003
SAMPLES = 5
PARTNERS = 3
# of each product, cold and hot
REPEATS = 16


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to simulate. `slow`, `links` and `nodes` put places so many standard deviations below the median."""

    nodes: int = 1000
    gpus: int = 8
    seed: int = 0
    # of the variance between GPUs, what all figures of one GPU have in common
    shared: float = 0.8
    # None: normal; a number: Student's t with that many degrees of freedom, of the same interquartile range
    tails: float | None = None
    slow: Mapping[Spot, float] = field(default_factory=dict)
    links: Mapping[Spot, float] = field(default_factory=dict)
    ill_nodes: Mapping[int, float] = field(default_factory=dict)
    # each corrupting GPU and the share of its hot repeats that are wrong
    corrupt: Mapping[Spot, float] = field(default_factory=dict)
    only: Sequence[str] = ()


@dataclass(frozen=True)
class Truth:
    """What each measure would give without noise, by key, as nodes x GPUs (nodes x 1 for a node's measure)."""

    plan: Plan
    centres: Mapping[str, tuple[Measure, np.ndarray]]
    # of each size that pairs exchange, what each end can do
    ends: Mapping[int, np.ndarray]


def build(plan: Plan) -> tuple[FleetRecord, Truth]:
    """The first measurement of everything."""
    rng = np.random.default_rng(plan.seed)
    truth = _truth(plan, rng)
    nodes = tuple(
        FleetNode(
            gpus=tuple(
                FleetGpu(index=g, model=MODEL, id=f"{n:04x}{g:02x}", capability=(9, 0), rail=f"mlx5_{g}")
                for g in range(plan.gpus)
            ),
            host=f"cn{n:04d}",
            id=f"{n:04x}",
            switch=f"leaf{n // 32}",
            versions={"driver": "570.86.15", "cublas": "12.8.4", "nccl": "2.26.2", "torch": "2.9.1"},
            clock_offset_s=0.0,
            doctor="healthy",
        )
        for n in range(plan.nodes)
    )
    measures = [replace(m, readings=_readings(values, rng)) for m, values in truth.centres.values()]
    partners = _partners(plan, rng)
    measures += [_pairs(truth, rng, partners, size) for size in truth.ends]
    return FleetRecord(
        nodes=nodes, measures=tuple(measures), digests=tuple(_digests(plan, rng)), made={"engine": "none"}
    ), truth


def again(record: FleetRecord, truth: Truth, seed: int = 1) -> FleetRecord:
    """The record with a second, independent measurement of all that `suspects` asks for."""
    rng = np.random.default_rng((truth.plan.seed, seed))
    wanted: dict[str, tuple[Measure, set[Spot]]] = {}
    corrupt: list[Spot] = []
    for suspect in suspects(record):
        if suspect.measure is not None:
            places = wanted.setdefault(suspect.measure.key, (suspect.measure, set()))[1]
            places.update(_gpus_of(suspect, truth.plan, suspect.measure), suspect.witnesses)
        elif suspect.what == "digest":
            corrupt += [*suspect.at, *suspect.witnesses]
    more = []
    for key, (measure, places) in wanted.items():
        if measure.scope == "pair":
            pairs = [(spot, _partner(spot, truth.plan, rng)) for spot in sorted(places) for _ in range(PARTNERS)]
            more.append(replace(_pairs(truth, rng, pairs, int(measure.parameters["bytes"])), attempt=2))
        else:
            values = truth.centres[key][1]
            readings = [_reading(spot, values[spot.node, max(0, spot.gpu)], rng) for spot in sorted(places)]
            more.append(replace(measure, readings=tuple(readings), attempt=2))
    digests = [replace(one, attempt=2) for one in _digests(truth.plan, rng, set(corrupt))]
    return replace(record, measures=(*record.measures, *more), digests=(*record.digests, *digests))


def _gpus_of(suspect: Suspect, plan: Plan, measure: Measure) -> list[Spot]:
    whole = [spot for spot in suspect.at if spot.gpu < 0 and measure.scope != "node"]
    return [*(s for s in suspect.at if s not in whole), *(Spot(s.node, g) for s in whole for g in range(plan.gpus))]


def _truth(plan: Plan, rng: np.random.Generator) -> Truth:
    size = (plan.nodes, plan.gpus)
    # one factor of each part of the machine
    own = {kind: _spread(rng, size, plan.tails) for kind in SPREADS}
    # what stands at the end of the air flow is slower on every node
    position = np.where(np.arange(plan.gpus) >= plan.gpus // 2, -0.01, 0.0)
    centres: dict[str, tuple[Measure, np.ndarray]] = {}

    def add(measure: Measure, top: float, kind: str, shift: np.ndarray | float = 0.0) -> None:
        if plan.only and measure.name not in plan.only:
            return
        z = np.sqrt(plan.shared) * own[kind] + np.sqrt(1 - plan.shared) * _spread(rng, size, plan.tails)
        if measure.scope == "node":
            z = _spread(rng, (plan.nodes, 1), plan.tails)
        elif kind == "compute":
            for spot, sigma in plan.slow.items():
                z[spot.node, spot.gpu] = -sigma
            for node, sigma in plan.ill_nodes.items():
                z[node, :] -= sigma
        centres[measure.key] = (measure, top * np.exp(SPREADS[kind] * z + shift))

    for load in ("alone", "together"):
        shift = position if load == "together" else 0.0
        for dtype, peak in PEAKS.items():
            matmul = Measure(
                name="matmul", scope="gpu", unit="TFLOP/s", parameters={"dtype": dtype}, load=load, readings=()
            )
            add(matmul, peak, "compute", shift)
        for name in ("device_copy", "device_read"):
            add(Measure(name=name, scope="gpu", unit="GB/s", load=load, readings=()), 2900.0, "memory")
        for name in ("h2d", "d2h"):
            link = Measure(name=name, scope="gpu", unit="GB/s", parameters={"host": "pinned"}, load=load, readings=())
            add(link, 55.0, "host link", position)
        add(Measure(name="train_step", scope="gpu", unit="samples/s", load=load, readings=()), 5000.0, "compute", shift)
    for size_bytes in (1 << 26, 1 << 30):
        inside = Measure(name="all_reduce", scope="node", unit="GB/s", parameters={"bytes": size_bytes}, readings=())
        add(inside, 470.0, "GPU link")
    add(Measure(name="loader", scope="node", unit="items/s", readings=()), 9000.0, "storage")
    port = _spread(rng, size, plan.tails)
    ends = {}
    for size_bytes in (1 << 26, 1 << 30):
        z = np.sqrt(plan.shared) * port + np.sqrt(1 - plan.shared) * _spread(rng, size, plan.tails)
        for spot, sigma in plan.links.items():
            z[spot.node, spot.gpu] = -sigma
        ends[size_bytes] = 48.0 * np.exp(SPREADS["network"] * z)
    return Truth(plan, centres, ends)


def _spread(rng: np.random.Generator, size: tuple[int, int], tails: float | None) -> np.ndarray:
    if tails is None:
        return rng.standard_normal(size)
    quartile = float(np.quantile(rng.standard_t(tails, 200_000), 0.75))
    return rng.standard_t(tails, size) * 0.6745 / quartile


def _readings(values: np.ndarray, rng: np.random.Generator) -> tuple[FleetReading, ...]:
    samples = (values[..., None] * (1 + NOISE * rng.standard_normal((*values.shape, SAMPLES)))).tolist()
    whole = values.shape[1] == 1
    return tuple(
        FleetReading(at=(Spot(n, -1 if whole else g),), samples=tuple(one))
        for n, row in enumerate(samples)
        for g, one in enumerate(row)
    )


def _reading(spot: Spot, value: float, rng: np.random.Generator) -> FleetReading:
    return FleetReading(at=(spot,), samples=tuple((value * (1 + NOISE * rng.standard_normal(SAMPLES))).tolist()))


def _partners(plan: Plan, rng: np.random.Generator) -> list[tuple[Spot, Spot]]:
    """Rounds in which every node meets another one, each rail by itself."""
    pairs = []
    for _ in range(PARTNERS):
        order = rng.permutation(plan.nodes)
        for a, b in zip(order[0::2], order[1::2], strict=False):
            pairs += [(Spot(int(a), g), Spot(int(b), g)) for g in range(plan.gpus)]
    return pairs


def _partner(spot: Spot, plan: Plan, rng: np.random.Generator) -> Spot:
    other = int(rng.integers(plan.nodes - 1))
    return Spot(other + (other >= spot.node), spot.gpu)


def _pairs(truth: Truth, rng: np.random.Generator, pairs: Sequence[tuple[Spot, Spot]], size: int) -> Measure:
    ends = truth.ends[size]
    values = np.array([min(ends[a.node, a.gpu], ends[b.node, b.gpu]) for a, b in pairs])
    samples = (values[:, None] * (1 + NOISE * rng.standard_normal((len(pairs), SAMPLES)))).tolist()
    readings = tuple(FleetReading(at=at, samples=tuple(one)) for at, one in zip(pairs, samples, strict=True))
    return Measure(name="sendrecv", scope="pair", unit="GB/s", parameters={"bytes": size}, readings=readings)


def _digests(plan: Plan, rng: np.random.Generator, only: set[Spot] | None = None) -> Iterable[Digest]:
    for product in ("bf16 4096 seed 0", "fp32 2048 seed 1"):
        for hot in (False, True):
            for node in range(plan.nodes):
                for gpu in range(plan.gpus):
                    at = Spot(node, gpu)
                    if only is not None and at not in only:
                        continue
                    wrong = int(rng.binomial(REPEATS, plan.corrupt[at])) if at in plan.corrupt and hot else 0
                    seen = {product: REPEATS - wrong} if wrong < REPEATS else {}
                    seen |= {f"wrong{i}": 1 for i in range(wrong)}
                    yield Digest(product=product, at=at, seen=seen, hot=hot)
