"""The largest thing that explains what is slow is named, nothing below it, and nobody on one measurement."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoc.fleet.oddities import find_odd, find_splits, is_split, limit_for, threshold
from gpudoc.fleet.record import FleetReading, Measure, Spot
from gpudoc.fleet.scores import families
from tests.fleet.simulated import Plan, again, build

SMALL = {"nodes": 24, "gpus": 8, "only": ("matmul", "train_step")}


def named(record):
    return {(one.level, one.at) for one in find_odd(record, families(record)) if one.is_named}


def test_a_slow_gpu_is_named_and_not_its_node():
    record, _ = build(Plan(seed=1, slow={Spot(5, 2): 12.0}, **SMALL))
    assert named(record) == {("gpu", (Spot(5, 2),))}


def test_a_node_whose_gpus_are_all_slow_is_named_once_and_its_gpus_are_not():
    record, _ = build(Plan(seed=2, ill_nodes={9: 8.0}, **SMALL))
    assert named(record) == {("node", (Spot(9),))}


def test_a_gpu_that_is_odd_on_its_odd_node_is_named_beside_it():
    record, _ = build(Plan(seed=3, ill_nodes={9: 8.0}, slow={Spot(9, 1): 20.0}, **SMALL))
    assert named(record) == {("node", (Spot(9),)), ("gpu", (Spot(9, 1),))}


def test_a_switch_whose_nodes_are_all_slow_is_named_instead_of_them():
    plan = Plan(seed=4, nodes=40, gpus=4, only=("matmul",), ill_nodes=dict.fromkeys(range(8, 12), 9.0))
    record, _ = build(plan)
    nodes = tuple(replace(node, switch=f"leaf{n // 4}") for n, node in enumerate(record.nodes))
    found = named(replace(record, nodes=nodes))
    assert found == {("switch", tuple(Spot(n) for n in range(8, 12)))}


def test_without_knowing_switches_the_nodes_are_named():
    from gpudoc.facts.model import Absent

    plan = Plan(seed=4, nodes=40, gpus=4, only=("matmul",), ill_nodes=dict.fromkeys(range(8, 12), 9.0))
    record, _ = build(plan)
    nodes = tuple(replace(node, switch=Absent("no topology.conf")) for node in record.nodes)
    assert named(replace(record, nodes=nodes)) == {("node", (Spot(n),)) for n in range(8, 12)}


def test_a_bad_link_is_named_and_not_its_partners():
    record, _ = build(Plan(seed=5, nodes=24, gpus=4, only=("none",), links={Spot(7, 3): 10.0}))
    assert named(record) == {("link", (Spot(7, 3),))}


def test_a_rail_that_is_slow_on_all_nodes_is_named_although_its_position_is_like_itself():
    links = {Spot(n, 3): 12.0 for n in range(24)}
    record, _ = build(Plan(seed=6, nodes=24, gpus=8, only=("none",), links=links))
    found = named(record)
    assert {level for level, _ in found} == {"rail"}
    assert {spot.gpu for _, at in found for spot in at} == {3}


def test_a_path_between_two_good_ends_is_named_as_a_path():
    record, _ = build(Plan(seed=7, nodes=24, gpus=1, only=("none",)))
    measures = []
    for measure in record.measures:
        readings = list(measure.readings)
        readings[0] = replace(readings[0], samples=tuple(value * 0.7 for value in readings[0].samples))
        measures.append(replace(measure, readings=tuple(readings)))
    assert named(replace(record, measures=tuple(measures))) == {("path", record.measures[0].readings[0].at)}


def test_three_places_may_tell_who_is_odd_and_two_may_not():
    def record(count):
        whole, _ = build(Plan(seed=8, nodes=1, gpus=count, only=("none",)))
        speeds = [100.0] * (count - 1) + [50.0]
        readings = tuple(FleetReading(at=(Spot(0, g),), samples=(v, v, v)) for g, v in enumerate(speeds))
        return replace(whole, measures=(Measure(name="matmul", scope="gpu", unit="TFLOP/s", readings=readings),))

    assert named(record(3)) == {("gpu", (Spot(0, 2),))}
    assert named(record(2)) == set()


def test_a_transient_is_not_confirmed_and_no_longer_named():
    plan = Plan(seed=9, slow={Spot(5, 2): 12.0}, **SMALL)
    record, _ = build(plan)
    _, healthy = build(replace(plan, slow={}))
    (odd,) = [one for one in find_odd(record, families(record)) if one.is_named and one.family.load == "alone"]
    assert not odd.is_confirmed
    after = again(record, healthy)
    assert named(after) == set()
    real = again(record, build(plan)[1])
    assert all(one.is_confirmed for one in find_odd(real, families(real)) if one.is_named)
    assert named(real) == {("gpu", (Spot(5, 2),))}


def test_few_peers_need_a_wider_distance():
    assert limit_for(4, 4.0) > limit_for(64, 4.0) > 4.0


def test_the_threshold_grows_with_what_could_be_drained_for_nothing():
    record, _ = build(Plan(seed=10, **SMALL))
    found = families(record)
    assert 3.8 < threshold(found[:1]) < threshold(found)


@pytest.mark.parametrize(("ill", "split"), [(2, False), (7, True)])
def test_when_a_fifth_is_odd_the_others_are_no_yardstick(ill, split):
    slow = {Spot(n, 0): 30.0 for n in range(ill)}
    record, _ = build(Plan(seed=11, nodes=30, gpus=1, only=("matmul",), slow=slow))
    odd = [one for one in find_odd(record, families(record)) if one.family.load == "alone"]
    assert is_split(odd) is split


@pytest.mark.parametrize(("ill", "told"), [(0, 0), (3, 0), (12, 12)])
def test_a_fleet_of_two_kinds_is_told_by_its_lower_quartile(ill, told):
    slow = {Spot(n, 0): 30.0 for n in range(ill)}
    record, _ = build(Plan(seed=12, nodes=30, gpus=1, only=("train_step",), slow=slow))
    found = [one for one in find_splits(families(record)) if one.scored.measure.load == "alone"]
    assert [len(one.below) for one in found] == ([told] if told else [])
