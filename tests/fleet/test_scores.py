"""The yardstick: peers, positions, few and many of them, ends of pairs, and the second measurement."""

from __future__ import annotations

import math
import random

import pytest

from gpudoc.facts.model import Absent
from gpudoc.fleet.record import FleetGpu, FleetNode, FleetReading, FleetRecord, Measure, Spot
from gpudoc.fleet.scores import distance, families, kind_of, score, values_of, yardstick


def fleet(nodes: int, gpus: int, models: dict[Spot, object] | None = None) -> FleetRecord:
    chosen = models or {}
    return FleetRecord(
        nodes=tuple(
            FleetNode(gpus=tuple(FleetGpu(index=g, model=chosen.get(Spot(n, g), "A100")) for g in range(gpus)))
            for n in range(nodes)
        )
    )


def matmul(values: dict[Spot, float], **more) -> Measure:
    readings = tuple(FleetReading(at=(spot,), samples=(value,) * 3) for spot, value in values.items())
    return Measure(name="matmul", scope="gpu", unit="TFLOP/s", readings=readings, **more)


def noisy(nodes: int, gpus: int, sigma: float, seed: int = 0) -> dict[Spot, float]:
    rng = random.Random(seed)
    return {Spot(n, g): 100 * math.exp(rng.gauss(0, sigma)) for n in range(nodes) for g in range(gpus)}


def test_a_slow_gpu_is_as_many_spreads_below_its_peers_as_it_is():
    values = noisy(20, 8, 0.02)
    values[Spot(7, 3)] = 100 * math.exp(-0.2)
    scored = score(matmul(values), fleet(20, 8))
    worst = min(scored.z, key=scored.z.get)
    assert worst == (Spot(7, 3),)
    assert -13 < scored.z[worst] < -8
    assert sum(z < -3.5 for z in scored.z.values()) == 1


def test_gpus_of_another_model_are_no_peers():
    values = noisy(10, 4, 0.01) | {Spot(n, 0): 50.0 + n * 0.1 for n in range(10)}
    models = {Spot(n, 0): "V100" for n in range(10)}
    scored = score(matmul(values), fleet(10, 4, models))
    assert min(scored.z.values()) > -4
    assert scored.peers[(Spot(0, 0),)] == 10
    assert scored.peers[(Spot(0, 1),)] == 30


def test_a_gpu_whose_model_is_not_known_is_compared_with_its_like_only():
    values = noisy(10, 4, 0.01) | {Spot(0, 0): 50.0}
    scored = score(matmul(values), fleet(10, 4, {Spot(0, 0): Absent("no NVML")}))
    assert scored.peers[(Spot(0, 0),)] == 1


def test_a_position_that_is_slow_on_every_node_is_not_odd_from_sixteen_nodes_on():
    values = noisy(16, 8, 0.01)
    values |= {Spot(n, 3): values[Spot(n, 3)] * 0.8 for n in range(16)}
    assert min(score(matmul(values), fleet(16, 8)).z.values()) > -4
    few = {spot: value for spot, value in values.items() if spot.node < 4}
    assert min(score(matmul(few), fleet(4, 8)).z.values()) < -6


def test_with_few_peers_the_published_spread_counts():
    # three GPUs that happen to agree to 0.01 %, and one that is 1 % slower: no proof of anything
    values = {Spot(0, 0): 100.0, Spot(0, 1): 100.01, Spot(0, 2): 99.99, Spot(0, 3): 99.0}
    assert min(score(matmul(values), fleet(1, 4)).z.values()) > -1.5


@pytest.mark.parametrize("seed", range(3))
def test_among_many_the_lower_tail_is_the_yardstick(seed):
    rng = random.Random(seed)
    # the faster half is cut off, as clocks are: the middle is narrow, the tail is that of a spread of 1
    values = [min(rng.gauss(0, 1), 0.1) for _ in range(4000)]
    usual = sorted(values)[2000]
    centre, width = yardstick([v - usual for v in values], 1.0)
    assert width == pytest.approx(1.0, rel=0.12)
    assert usual + centre == pytest.approx(0.0, abs=0.12)


def test_one_in_ten_ill_places_do_not_double_the_yardstick():
    rng = random.Random(1)
    values = [rng.gauss(0, 1) for _ in range(900)] + [-40.0] * 100
    usual = sorted(values)[500]
    assert yardstick([v - usual for v in values], 1.0)[1] < 2.0


def test_the_noise_of_the_samples_is_the_least_spread():
    rng = random.Random(2)
    readings = tuple(
        FleetReading(at=(Spot(n, 0),), samples=tuple(100 * (1 + rng.gauss(0, 0.3)) for _ in range(5))) for n in range(6)
    )
    noisy_measure = Measure(name="matmul", scope="gpu", unit="TFLOP/s", readings=readings)
    assert score(noisy_measure, fleet(6, 1)).spread > 0.08


def test_an_end_is_as_good_as_its_best_pair_and_an_ill_end_makes_no_partner_ill():
    pairs = {(0, 1): 50.0, (0, 2): 20.0, (1, 2): 20.5, (0, 3): 49.0, (2, 3): 19.5, (1, 3): 51.0}
    readings = tuple(FleetReading(at=(Spot(a), Spot(b)), samples=(v,)) for (a, b), v in pairs.items())
    ends = values_of(Measure(name="sendrecv", scope="pair", unit="GB/s", readings=readings))
    assert ends[Spot(2),] == pytest.approx(20.0, abs=0.6)
    assert min(ends[Spot(n),] for n in (0, 1, 3)) >= 49.0


def test_latency_is_worse_when_it_is_higher():
    assert distance(2.0, 1.0, -1.0) == pytest.approx(-math.log(2))
    assert distance(2.0, 1.0, 1.0) == pytest.approx(math.log(2))


def test_what_gives_nothing_is_as_bad_as_can_be():
    assert distance(0.0, 10.0, 1.0) == distance(-1.0, 10.0, 1.0) < -5


@pytest.mark.parametrize(
    ("name", "scope", "parameters", "kind"),
    [
        ("matmul", "gpu", {}, "compute"),
        ("train_step", "gpu", {}, "compute"),
        ("device_copy", "gpu", {}, "memory"),
        ("h2d", "gpu", {}, "host link"),
        ("all_reduce", "node", {"bytes": 1 << 30}, "GPU link"),
        ("all_reduce", "group", {"bytes": 1 << 30}, "network"),
        ("all_reduce", "group", {"bytes": 8}, "latency"),
        ("loader", "node", {}, "storage"),
        ("whatever", "gpu", {}, "other"),
    ],
)
def test_each_measure_belongs_to_one_part_of_the_machine(name, scope, parameters, kind):
    at = (Spot(0),) if scope == "node" else (Spot(0), Spot(1))
    reading = FleetReading(at=at, samples=(1.0,))
    assert kind_of(Measure(name=name, scope=scope, unit="", parameters=parameters, readings=(reading,))) == kind


def test_what_all_moved_by_is_taken_out_of_the_second_measurement():
    values = noisy(10, 4, 0.01)
    values[Spot(2, 2)] = 80.0
    # hotter the second time: everybody is 5 % slower, the suspect too
    beside = [Spot(n, 1) for n in range(4)]
    second = matmul({spot: values[spot] * 0.95 for spot in [*beside, Spot(2, 2)]}, attempt=2)
    scored = score(matmul(values), fleet(10, 4), [second])
    assert scored.z_again[(Spot(2, 2),)] == pytest.approx(scored.z[(Spot(2, 2),)], abs=0.5)
    assert abs(scored.z_again[(Spot(1, 1),)] - scored.z[(Spot(1, 1),)]) < 0.5


def test_several_figures_that_are_low_together_weigh_more_than_one():
    record = fleet(20, 8)
    measures = []
    for seed in range(4):
        values = noisy(20, 8, 0.02, seed)
        values[Spot(7, 3)] = 100 * math.exp(-0.06)
        measures.append(matmul(values, parameters={"size": seed}))
    (family,) = families(FleetRecord(nodes=record.nodes, measures=tuple(measures)))
    single = min(scored.z[Spot(7, 3),] for scored in family.scored)
    assert family.z[Spot(7, 3),] < single - 0.5


def test_one_figure_alone_counts_less_one_spread():
    record = fleet(20, 8)
    measures = []
    for seed in range(4):
        values = noisy(20, 8, 0.02, seed)
        if seed == 0:
            values[Spot(7, 3)] = 100 * math.exp(-0.2)
        measures.append(matmul(values, parameters={"size": seed}))
    (family,) = families(FleetRecord(nodes=record.nodes, measures=tuple(measures)))
    assert family.z[Spot(7, 3),] == pytest.approx(family.scored[0].z[Spot(7, 3),] + 1.0)
    assert family.relative[Spot(7, 3),] == pytest.approx(-0.2, abs=0.03)
