"""Two records of the same cards: what got worse by itself, what moved everywhere, and what cannot be compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent
from gpudoc.fleet.record import FleetRecord, Spot
from gpudoc.fleet.report import FleetReport
from tests.fleet.simulated import Plan, build

PLAN = Plan(nodes=12, gpus=4, seed=1, only=("matmul", "train_step"))


def scaled(record: FleetRecord, factor: float, only: set[Spot] | None = None, name: str = "") -> FleetRecord:
    """The record with figures times `factor`, everywhere or at these places only."""
    measures = []
    for measure in record.measures:
        readings = tuple(
            replace(r, samples=tuple(v * factor for v in r.samples))
            if (only is None or set(r.at) & only) and measure.name.startswith(name)
            else r
            for r in measure.readings
        )
        measures.append(replace(measure, readings=readings))
    return replace(record, measures=tuple(measures))


def compared(old, new):
    found = FleetReport.of(new, old)
    assert found.comparison is not None
    return found.comparison


@pytest.fixture(scope="module")
def old():
    return build(PLAN)[0]


def test_a_fleet_compared_with_itself_changed_in_nothing(old):
    found = compared(old, old)
    assert (found.worse, found.better, found.shifts, found.appeared, found.versions) == ((), (), (), (), ())
    assert found.matched == 48
    assert not found.is_worse


def test_a_card_that_lost_speed_since_is_named_although_it_is_no_odd_one_yet(old):
    found = compared(old, scaled(old, 0.95, {Spot(3, 1)}, "matmul"))
    assert {change.at for change in found.worse} == {(Spot(3, 1),)}
    assert all(change.ratio == pytest.approx(0.95, abs=0.005) for change in found.worse)
    assert found.is_worse


def test_a_card_is_followed_to_another_node(old):
    moved = scaled(old, 0.9, {Spot(3, 1)}, "matmul")
    nodes = list(moved.nodes)
    a, b = list(nodes[3].gpus), list(nodes[7].gpus)
    a[1], b[1] = replace(b[1], index=1), replace(a[1], index=1)
    nodes[3], nodes[7] = replace(nodes[3], gpus=tuple(a)), replace(nodes[7], gpus=tuple(b))
    swap = {Spot(3, 1): Spot(7, 1), Spot(7, 1): Spot(3, 1)}
    measures = tuple(
        replace(m, readings=tuple(replace(r, at=tuple(swap.get(s, s) for s in r.at)) for r in m.readings))
        for m in moved.measures
    )
    found = compared(old, replace(moved, nodes=tuple(nodes), measures=measures))
    assert {change.at for change in found.worse if change.key.startswith("matmul")} == {(Spot(7, 1),)}


def test_what_all_lost_together_is_one_line_and_no_cards_fault(old):
    found = compared(old, scaled(old, 0.93, None, "train_step"))
    assert found.worse == ()
    assert {shift.key for shift in found.shifts} == {"train_step alone", "train_step together"}
    assert all(shift.ratio == pytest.approx(0.93, abs=0.001) for shift in found.shifts)
    assert found.is_worse


def test_what_is_found_now_and_was_not_is_new_and_the_other_way_round_is_gone(old):
    bad = scaled(old, 0.7, {Spot(3, 1)}, "matmul")
    assert any("GPU 1 of node 3" in title for title in compared(old, bad).appeared)
    assert any("GPU 1 of node 3" in title for title in compared(bad, old).mended)
    assert not compared(bad, old).is_worse


def test_versions_that_changed_are_said(old):
    nodes = tuple(replace(n, versions={**n.versions, "driver": "575.51.03"}) for n in old.nodes)
    assert compared(old, replace(old, nodes=nodes)).versions == ("driver was 570.86.15, is 575.51.03",)


def test_cards_that_are_in_one_record_only_are_counted_and_not_judged(old):
    smaller = replace(
        old,
        nodes=old.nodes[:-1],
        measures=tuple(
            replace(m, readings=tuple(r for r in m.readings if all(s.node < 11 for s in r.at))) for m in old.measures
        ),
        digests=tuple(d for d in old.digests if d.at.node < 11),
    )
    found = compared(old, smaller)
    assert (found.matched, found.only_old, found.only_new) == (44, 4, 0)


def test_processes_on_the_cpus_of_one_node_are_told_apart(old):
    of_cpus = [tuple(replace(gpu, id=Absent("no UUID"), index=0) for gpu in node.gpus) for node in old.nodes]
    cpus = replace(old, nodes=tuple(replace(node, gpus=gpus) for node, gpus in zip(old.nodes, of_cpus, strict=True)))
    found = compared(cpus, scaled(cpus, 0.9, {Spot(3, 1)}, "matmul"))
    assert (found.matched, found.only_old, found.only_new) == (48, 0, 0)
    assert {change.at for change in found.worse} == {(Spot(3, 1),)}


def test_without_ids_nothing_is_matched_by_guess(old):
    gpus = tuple(replace(g, id=Absent("no UUID")) for g in old.nodes[0].gpus)
    nodes = tuple(replace(n, id=Absent("no machine-id"), gpus=gpus) for n in old.nodes)
    with pytest.raises(GpudocError) as problem:
        compared(replace(old, nodes=nodes), old)
    assert "no GPU and no node is in both" in problem.value.message


def test_records_that_were_measured_otherwise_are_refused(old):
    with pytest.raises(GpudocError) as problem:
        compared(replace(old, made={"fleet_version": 7}), old)
    assert "fleet_version was 7, is 1" in problem.value.message
