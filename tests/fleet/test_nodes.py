"""Whole nodes: silent ones, doctor's findings of every node, and when a node may be drained for them."""

from __future__ import annotations

import pytest

from gpudoc.doctor.model import Finding, observe
from gpudoc.fleet.nodes import clock_findings, node_findings, silent_findings, software_findings
from gpudoc.fleet.record import FleetNode, FleetRecord, MissingPart, Spot
from gpudoc.fleet.software import differences

ECC = Finding(id="gpu_ecc_error", confidence=0.9, title="ECC errors", evidence=(observe("xid", 48, "dmesg"),))


@pytest.mark.parametrize(
    ("reason", "attempts", "drain"),
    [("died", 1, False), ("died", 2, True), ("hung", 2, True), ("no gpudoc", 2, False), ("another version", 2, False)],
)
def test_a_silent_node_is_named_and_drained_only_when_a_second_start_failed_too(reason, attempts, drain):
    silent = FleetNode(missing=MissingPart(reason, "connection reset", "matmul", attempts))
    (found,) = silent_findings(FleetRecord(nodes=(FleetNode(), silent)))
    assert found.at == (Spot(1),)
    assert found.drain is drain
    assert "connection reset (during matmul)" in found.finding.evidence[0].value
    assert found.finding.title.startswith("Node 1 gave no answer")


def test_nodes_with_one_reason_are_one_finding():
    nodes = tuple(FleetNode(missing=MissingPart("no gpudoc", "not found")) for _ in range(3))
    (found,) = silent_findings(FleetRecord(nodes=nodes))
    assert found.at == (Spot(0), Spot(1), Spot(2))


def test_doctors_finding_drains_only_what_a_second_doctor_found_too():
    twice = FleetNode(findings=(ECC,), findings_again=("gpu_ecc_error",))
    once = FleetNode(findings=(ECC,), findings_again=())
    unknown = FleetNode(findings=(ECC,))
    found = list(node_findings(FleetRecord(nodes=(FleetNode(),) * 4 + (twice, once, unknown))))
    assert [(one.at, one.drain) for one in found] == [((Spot(4),), True), ((Spot(5), Spot(6)), False)]


def test_what_most_nodes_have_is_no_nodes_own_fault():
    ill = FleetNode(findings=(ECC,), findings_again=("gpu_ecc_error",))
    (found,) = node_findings(FleetRecord(nodes=(ill, ill, ill, FleetNode())))
    assert not found.drain


def test_a_difference_that_jobs_need_equal_is_a_warning_and_names_the_odd_node():
    nodes = tuple(
        FleetNode(versions={"nccl": v, "kernel": k}) for v, k in (("2.26", "a"), ("2.26", "a"), ("2.21", "b"))
    )
    found = list(software_findings(differences(FleetRecord(nodes=nodes)), 3))
    assert [(one.finding.severity, one.at) for one in found] == [("warning", (Spot(2),)), ("info", (Spot(2),))]
    assert found[0].finding.title == "nccl differs: node 2"


def test_clocks_that_are_apart_are_said_with_their_offsets():
    nodes = (FleetNode(clock_offset_s=0.0), FleetNode(clock_offset_s=-7.25))
    (found,) = clock_findings(FleetRecord(nodes=nodes))
    assert found.at == (Spot(1),)
    assert found.finding.evidence[0].value == "-7.2 s"
