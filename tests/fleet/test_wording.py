"""Findings in words: figures beside the peers', what was seen meanwhile, and what to do about that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoc.fleet.oddities import find_odd
from gpudoc.fleet.record import FleetRecord, Spot
from gpudoc.fleet.scores import families
from gpudoc.fleet.wording import slow_finding, spots_name
from tests.fleet.simulated import Plan, build


def told(name: str, context: dict[str, float], usual: dict[str, float]) -> FleetRecord:
    record, _ = build(Plan(nodes=12, gpus=4, seed=1, only=(name,), slow={Spot(3, 1): 15.0}))
    measures = []
    for measure in record.measures:
        readings = tuple(replace(r, context=context if r.at == (Spot(3, 1),) else usual) for r in measure.readings)
        measures.append(replace(measure, readings=readings))
    return replace(record, measures=tuple(measures))


def finding_of(record):
    odd = [one for one in find_odd(record, families(record)) if one.is_named]
    return slow_finding(odd, record, drain=False)


def test_a_hot_gpu_is_told_with_its_clock_and_heat_beside_the_others():
    hot = {"sm_clock_mhz": 1400.0, "temperature_c": 88.0, "power_w": 690.0}
    found = finding_of(told("matmul", hot, {"sm_clock_mhz": 1980.0, "temperature_c": 62.0, "power_w": 695.0}))
    assert found.title.startswith("GPU 1 of node 3 is ")
    said = {one.fact: one.value for one in found.evidence}
    assert said["SM clock"] == "1400 MHz, the others 1980"
    assert said["temperature"] == "88 °C, the others 62"
    assert "power" not in said
    assert "heat sink" in " ".join(remedy.say for remedy in found.fix)


def test_a_gpu_whose_link_trained_narrow_is_to_be_reseated():
    found = finding_of(told("matmul", {"link_width": 4.0}, {"link_width": 16.0}))
    assert "Reseat" in " ".join(remedy.say for remedy in found.fix)


def test_without_a_second_measurement_the_advice_is_to_measure_again_and_not_to_drain():
    found = finding_of(told("matmul", {}, {}))
    words = " ".join(f"{remedy.say} {remedy.run}" for remedy in found.fix)
    assert "Measure once more" in words
    assert "DRAIN" not in words


@pytest.mark.parametrize(
    ("spots", "name"),
    [
        ((Spot(17),), "node 17"),
        ((Spot(17, 3),), "GPU 3 of node 17"),
        (tuple(Spot(n) for n in range(6)), "node 0, node 1, node 2, node 3 and 2 more"),
    ],
)
def test_places_are_named_the_first_few(spots, name):
    assert spots_name(spots) == name
