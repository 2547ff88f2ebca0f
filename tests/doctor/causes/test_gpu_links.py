from __future__ import annotations

import pytest

from gpudoc.doctor.causes.gpu_links import FINDERS, find_nvlinks
from gpudoc.facts.model import NOT_SUPPORTED, Absent, Link
from tests.machines.built import ask, found, gpu, machine

FIND = {finder.id: finder.find for finder in FINDERS if finder.find is not find_nvlinks}


@pytest.mark.parametrize(
    ("link", "use", "state", "degraded"),
    [
        (Link(generation=1, generation_max=5, width=16, width_max=16), 0, 8, False),
        (Link(generation=1, generation_max=5, width=16, width_max=16), 99, 0, True),
        (Link(generation=5, generation_max=5, width=16, width_max=16), 99, 0, False),
        (Link(generation=1, generation_max=4, width=8, width_max=16), 0, 8, True),
        (Link(generation=4, generation_max=4, generation_gpu_max=5, width=8, width_max=8), 99, 0, False),
    ],
)
def test_a_link_is_judged_by_width_and_under_load_by_speed(link, use, state, degraded):
    facts = machine(gpu(link=link, utilization_percent=use, performance_state=state))
    assert bool(found(FIND["pcie_link_degraded"], facts)) is degraded


@pytest.mark.parametrize("nothing", [{"width": 0}, {"generation": 0}])
def test_a_link_of_no_lanes_or_no_generation_is_not_checked(nothing):
    values = {"generation": 1, "generation_max": 5, "width": 16, "width_max": 16, **nothing}
    (skip,) = ask(FIND["pcie_link_degraded"], machine(gpu(link=Link(**values))))
    assert f"link.{next(iter(nothing))}" in skip.because


@pytest.mark.parametrize(("replays", "added", "expected"), [(0, 0, []), (900, 0, []), (900, 4, ["pcie_link_replays"])])
def test_only_a_counter_that_grows_is_a_finding(replays, added, expected):
    facts = machine(gpu(link=Link(width=16, width_max=16, replays=replays, replays_added=added)))
    assert [cause for cause, _ in found(FIND["pcie_link_replays"], facts)] == expected


def test_errors_of_nvlink_count_while_they_grow():
    assert found(FIND["nvlink_error"], machine(gpu(nvlink_errors=900))) == []
    (finding,) = ask(FIND["nvlink_error"], machine(gpu(nvlink_errors=900, nvlink_errors_added=12)))
    assert finding.evidence[0].value == "NVLink errors: 12 more between two readings, 912 in all"


def links(*active, name="NVIDIA H100 80GB HBM3", **changes):
    return machine(*(gpu(i, name=name, nvlink_active=up, **changes) for i, up in enumerate(active)))


@pytest.mark.parametrize(
    ("facts", "gpus"),
    [
        (links(18, 18), []),
        (links(18, 12), [1]),
        (links(0, 0), [0, 1]),
        (links(17, 17), [0, 1]),
        (links(0), []),
        (links(4, 4, virtualization="passthrough"), []),
        (links(0, 0, virtualization="passthrough"), [0, 1]),
        (links(0, 0, name="NVIDIA H100 NVL"), []),
        (links(12, 0, name="NVIDIA H100 NVL"), [1]),
        (links(4, 4, name="Tesla V100-SXM2-16GB"), []),
        (links(0, 0, name="Tesla V100-SXM2-16GB"), [0, 1]),
    ],
    ids=[
        "all up",
        "one like less",
        "all down",
        "one of each down",
        "alone",
        "two of a virtual machine",
        "none of its links",
        "no bridges",
        "one bridge",
        "partly",
        "none",
    ],
)
def test_nvlinks_are_compared_with_their_likes_and_with_their_model(facts, gpus):
    assert [card.index for finding in ask(find_nvlinks, facts) for card in finding.cards] == gpus


FABRIC = FIND["nvlink_fabric_unhealthy"]


@pytest.mark.parametrize(
    "changes",
    [{"fabric_state": "in progress"}, {"fabric_status": 999}, {"fabric_health": ("route unhealthy",)}],
    ids=str,
)
def test_a_fabric_is_completed_without_error_and_without_fault(changes):
    assert found(FABRIC, machine(gpu())) == []
    assert found(FABRIC, machine(gpu(**changes))) == [("nvlink_fabric_unhealthy", "warning")]


def test_an_error_code_counts_once_the_registration_has_ended():
    waiting = machine(gpu(fabric_state="in progress", fabric_status=999))
    (finding,) = ask(FABRIC, waiting)
    assert [seen.value for seen in finding.evidence] == [
        "fabric registration is in progress, and it should be completed"
    ]


def test_a_gpu_without_nvlink_is_named_as_not_checked():
    (skip,) = ask(find_nvlinks, machine(gpu(0), gpu(1, nvlink_active=Absent(NOT_SUPPORTED))))
    assert skip.because == f"GPU 1: nvlink_active: {NOT_SUPPORTED}"
