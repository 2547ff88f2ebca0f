from dataclasses import replace

from gpudoc.doctor.causes import connection
from gpudoc.doctor.model import Finding, Skip
from gpudoc.facts.model import Absent
from tests.doctor.causes.judge import finds
from tests.machines.built import ask, changed, gpu, machine


def in_slot(lanes, speed, **host):
    port = {"link_width_max": 16, "link_speed_max_gt_s": 16.0, "port_width_max": lanes, "port_speed_max_gt_s": speed}
    facts = machine()
    return replace(facts, pci=(replace(facts.pci[0], **port),), host=replace(facts.host, **host))


def on_nodes(gpus, allowed, nodes=2):
    facts = machine(*(gpu(i) for i in range(len(gpus))))
    devices = tuple(replace(d, numa_node=n) for d, n in zip(facts.pci, gpus, strict=True))
    return replace(facts, pci=devices, host=replace(facts.host, numa_nodes=nodes, numa_nodes_usable=allowed))


VIRTUAL = in_slot(1, 2.5, cpu_flags=("hypervisor",))
FAR = "process_far_from_gpu warning"

test_a_slot_is_judged_by_what_it_costs = finds([
    (connection.find_slot, in_slot(16, 16.0), ""),
    (connection.find_slot, in_slot(16, 32.0), ""),
    (connection.find_slot, in_slot(16, 8.0), "pcie_slot_limits_gpu info"),
    (connection.find_slot, in_slot(8, 16.0), "pcie_slot_limits_gpu info"),
    (connection.find_slot, in_slot(8, 8.0), "pcie_slot_limits_gpu warning"),
    (connection.find_slot, in_slot(4, 16.0), "pcie_slot_limits_gpu warning"),
    (connection.find_slot, in_slot(1, 5.0), "pcie_slot_limits_gpu warning"),
    # the slots of a virtual machine say nothing
    (connection.find_slot, VIRTUAL, ""),
])  # fmt: skip
test_a_process_is_far_when_no_gpu_hangs_on_its_nodes = finds([
    (connection.find_node, on_nodes((0,), (1,)), FAR),
    (connection.find_node, on_nodes((0, 0), (1,)), FAR),
    (connection.find_node, on_nodes((0,), (0, 1)), ""),
    (connection.find_node, on_nodes((0, 1), (1,)), ""),
    (connection.find_node, on_nodes((-1,), (1,)), ""),
    (connection.find_node, on_nodes((0,), (0,), 1), ""),
    (connection.find_node, on_nodes((3,), (0, 1), 4), FAR),
    (connection.find_node, changed(on_nodes((1,), (0,)), "host.numa_nodes_usable", Absent("the kernel does not name one")), ""),
])  # fmt: skip


def test_a_slot_that_is_not_known_or_not_real_is_not_checked():
    assert ask(connection.find_slot, machine()) == [Skip("0000:10:00.0: link_width_max: not read")]
    assert isinstance(ask(connection.find_slot, VIRTUAL)[0], Skip)


def test_the_command_names_the_node_of_the_gpu():
    (finding,) = ask(connection.find_node, on_nodes((1,), (0,)))
    assert isinstance(finding, Finding)
    assert "--cpunodebind=1 " in finding.fix[0].run
