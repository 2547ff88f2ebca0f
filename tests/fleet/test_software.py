"""Versions, cards and clocks that are not the same everywhere."""

from __future__ import annotations

from gpudoc.facts.model import Absent
from gpudoc.fleet.record import FleetGpu, FleetNode, FleetRecord, MissingPart
from gpudoc.fleet.software import clocks_apart, differences


def node(driver="570", kernel="6.8", gpus=2, **more):
    return FleetNode(
        versions={"driver": driver, "kernel": kernel},
        gpus=tuple(FleetGpu(index=g, model="H100", vbios="96.00") for g in range(gpus)),
        **more,
    )


def test_what_is_the_same_everywhere_is_no_difference():
    assert differences(FleetRecord(nodes=(node(), node(), node()))) == ()


def test_the_odd_node_is_named_and_what_jobs_need_equal_comes_first():
    found = differences(FleetRecord(nodes=(node(), node(driver="575", kernel="6.9"), node())))
    assert [(one.what, one.usual, one.odd, one.is_essential) for one in found] == [
        ("driver", "570", (1,), True),
        ("kernel", "6.8", (1,), False),
    ]


def test_without_a_majority_nobody_is_odd_by_name():
    (found,) = differences(FleetRecord(nodes=(node(), node(driver="575"))))
    assert found.usual is None
    assert found.values == {"570": (0,), "575": (1,)}


def test_a_node_that_does_not_tell_is_listed_and_not_taken_for_the_same():
    (found,) = differences(FleetRecord(nodes=(node(), node(driver=Absent("no NVML")), node())))
    assert (found.what, found.untold, len(found.values)) == ("driver", (1,), 1)


def test_a_node_that_lacks_a_gpu_differs():
    (found,) = differences(FleetRecord(nodes=(node(), node(), node(gpus=1))))
    assert (found.what, found.odd) == ("GPU", (2,))


def test_a_node_that_never_answered_is_no_difference_of_software():
    silent = FleetNode(missing=MissingPart("died", "connection reset"))
    assert differences(FleetRecord(nodes=(node(), node(), silent))) == ()


def test_clocks_are_apart_beyond_a_second_and_the_error_of_measuring():
    nodes = (
        node(clock_offset_s=0.0),
        node(clock_offset_s=0.9),
        node(clock_offset_s=-4.0, clock_error_s=0.1),
        node(clock_offset_s=4.0, clock_error_s=5.0),
        node(clock_offset_s=Absent("no answer")),
    )
    assert clocks_apart(FleetRecord(nodes=nodes)) == [(2, -4.0)]
