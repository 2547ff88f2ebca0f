from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoc.doctor.causes import connection
from gpudoc.doctor.model import Finding, Skip
from gpudoc.facts.model import Absent
from tests.machines.built import ask, changed, found, gpu, machine


def in_slot(lanes, speed, **host):
    facts = machine()
    (device,) = facts.pci
    device = replace(
        device, link_width_max=16, link_speed_max_gt_s=16.0, port_width_max=lanes, port_speed_max_gt_s=speed
    )
    return replace(facts, pci=(device,), host=replace(facts.host, **host))


@pytest.mark.parametrize(
    ("lanes", "speed", "expected"),
    [
        (16, 16.0, []),
        (16, 32.0, []),
        (16, 8.0, [("pcie_slot_limits_gpu", "info")]),
        (8, 16.0, [("pcie_slot_limits_gpu", "info")]),
        (8, 8.0, [("pcie_slot_limits_gpu", "warning")]),
        (4, 16.0, [("pcie_slot_limits_gpu", "warning")]),
        (1, 5.0, [("pcie_slot_limits_gpu", "warning")]),
    ],
)
def test_a_slot_is_judged_by_what_it_costs(lanes, speed, expected):
    assert found(connection.find_slot, in_slot(lanes, speed)) == expected


def test_the_slots_of_a_virtual_machine_say_nothing():
    facts = in_slot(1, 2.5, cpu_flags=("hypervisor",))
    assert found(connection.find_slot, facts) == []
    assert isinstance(ask(connection.find_slot, facts)[0], Skip)


def test_a_slot_that_is_not_known_is_not_checked():
    assert ask(connection.find_slot, machine()) == [Skip("0000:10:00.0: not read")]


def on_nodes(gpus, allowed, nodes=2):
    facts = machine(*(gpu(i) for i in range(len(gpus))))
    devices = tuple(replace(d, numa_node=n) for d, n in zip(facts.pci, gpus, strict=True))
    return replace(facts, pci=devices, host=replace(facts.host, numa_nodes=nodes, numa_nodes_usable=allowed))


@pytest.mark.parametrize(
    ("gpus", "allowed", "nodes", "far"),
    [
        ((0,), (1,), 2, True),
        ((0, 0), (1,), 2, True),
        ((0,), (0, 1), 2, False),
        ((0, 1), (1,), 2, False),
        ((-1,), (1,), 2, False),
        ((0,), (0,), 1, False),
        ((3,), (0, 1), 4, True),
    ],
)
def test_a_process_is_far_when_no_gpu_hangs_on_its_nodes(gpus, allowed, nodes, far):
    assert bool(found(connection.find_node, on_nodes(gpus, allowed, nodes))) is far


def test_the_command_names_the_node_of_the_gpu():
    (finding,) = ask(connection.find_node, on_nodes((1,), (0,)))
    assert isinstance(finding, Finding)
    assert "--cpunodebind=1 " in finding.fix[0].run


def test_without_numa_facts_nothing_is_claimed():
    facts = changed(on_nodes((1,), (0,)), "host.numa_nodes_usable", Absent("the kernel names none"))
    assert found(connection.find_node, facts) == []
