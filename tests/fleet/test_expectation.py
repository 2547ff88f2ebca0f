"""A fleet that is slow everywhere is held against what its model can do."""

from __future__ import annotations

import pytest

from gpudoc.facts.model import NOT_READ
from gpudoc.fleet.expectation import expectations
from gpudoc.fleet.record import FleetGpu, FleetNode, FleetReading, FleetRecord, Measure, Spot

H100 = {
    "model": "NVIDIA H100 80GB HBM3",
    "capability": (9, 0),
    "sm_count": 132,
    "sm_clock_max_mhz": 1980,
    "memory_clock_max_mhz": 2619,
    "memory_bus_bits": 5120,
    "link_generation_max": 5,
    "link_width_max": 16,
}


def record(measure, count=4, **changes):
    gpus = tuple(FleetGpu(index=g, **(H100 | changes)) for g in range(count))
    return FleetRecord(nodes=(FleetNode(gpus=gpus),), measures=(measure,))


def figures(name, values, **more):
    readings = tuple(FleetReading(at=(Spot(0, g),), samples=(v, v)) for g, v in enumerate(values))
    return Measure(name=name, scope="gpu", unit="x/s", readings=readings, **more)


@pytest.mark.parametrize(
    ("name", "parameters", "good", "bad"),
    [
        ("matmul", {"dtype": "bf16"}, 740.0, 400.0),
        ("device_copy", {}, 2900.0, 1200.0),
        ("h2d", {"host": "pinned"}, 56.0, 26.0),
    ],
)
def test_half_of_the_gpus_below_what_is_normal_is_low(name, parameters, good, bad):
    (fine,) = expectations(record(figures(name, [good] * 3 + [bad], parameters=parameters)))
    assert not fine.is_low
    (low,) = expectations(record(figures(name, [bad] * 3 + [good], parameters=parameters)))
    assert low.is_low
    assert low.formula


def test_without_the_facts_there_is_no_ceiling_and_no_judgement():
    matmul = figures("matmul", [1.0] * 4, parameters={"dtype": "bf16"})
    assert expectations(record(matmul, capability=NOT_READ)) == ()
    assert expectations(record(matmul, sm_clock_max_mhz=NOT_READ)) == ()
    assert expectations(record(figures("loader", [1.0] * 4))) == ()


def test_of_several_shapes_the_best_is_held_against_the_model():
    small = figures("matmul", [100.0] * 4, parameters={"dtype": "bf16", "size": 512})
    large = figures("matmul", [740.0] * 4, parameters={"dtype": "bf16", "size": 8192})
    whole = FleetRecord(nodes=record(small).nodes, measures=(small, large))
    (found,) = expectations(whole)
    assert found.measure is large
