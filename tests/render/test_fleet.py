"""The screen: verdict and loss first, then who is odd and what to do; hosts on one flag's stdout alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpudoc.fleet.record import FleetNode, MissingPart, Spot
from gpudoc.fleet.report import FleetReport
from gpudoc.render.fleet import comparison_lines, measure_name, show, show_bad_hosts, unjudged_lines
from tests.fleet.simulated import Plan, again, build


@pytest.fixture(scope="module")
def report():
    plan = Plan(nodes=12, gpus=4, seed=1, slow={Spot(3, 1): 15.0}, links={Spot(5, 2): 15.0}, only=("matmul",))
    record, truth = build(plan)
    return FleetReport.of(again(record, truth))


def test_the_screen_says_who_why_and_what_to_do(report, capsys):
    show(report, as_json=False, plain=True, verbose=False)
    text = capsys.readouterr().out
    assert text.startswith("12 nodes, 48 GPUs: 2 to drain: node 3, node 5; a synchronous job over all loses ")
    assert "drain: GPU 1 of node 3 is " in text
    assert "The link of GPU 2 of node 5 (mlx5_2)" in text
    assert "second measurement, in new processes" in text
    assert "matmul bf16, all GPUs at once" in text
    assert "robust standard deviations" in text
    assert "cn00" not in text


def test_json_is_one_document_of_the_fleet_and_names_no_host(report, capsys):
    show(report, as_json=True, plain=True, verbose=False)
    text = capsys.readouterr().out
    assert json.loads(text)["verdict"]["drain"] == [3, 5]
    assert "cn00" not in text


def test_bad_hosts_are_names_one_per_line_and_nothing_else(report, capsys):
    show_bad_hosts(report.record, report.verdict)
    assert capsys.readouterr().out == "cn0003\ncn0005\n"


def test_what_was_not_judged_is_on_the_screen_and_more_of_it_with_verbose(report, capsys):
    nodes = (*report.record.nodes, FleetNode(missing=MissingPart("hung", "no answer in 300 s")))
    show(FleetReport.of(replace(report.record, nodes=nodes, digests=())), as_json=False, plain=True, verbose=False)
    text = capsys.readouterr().out
    assert "13 nodes, 48 GPUs, 1 of the nodes did not answer" in text
    assert "Node 12 gave no answer" in text
    many = [*report.verdict.unjudged] * 1 or []
    assert list(unjudged_lines(many, 0)) == ([] if not many else [f"and {len(many)} more: --verbose"])


def test_measures_are_named_for_people(report):
    names = {measure_name(scored) for family in report.verdict.families for scored in family.scored}
    assert {"matmul bf16", "matmul bf16, all GPUs at once", "sendrecv 64 MiB, ends of pairs"} <= names


def test_a_comparison_says_what_got_worse(report):
    healthy, _ = build(Plan(nodes=12, gpus=4, seed=1, only=("matmul",)))
    lines = list(comparison_lines(FleetReport.of(report.record, healthy).comparison))
    assert lines[0].startswith("compared with the older record: 48 GPUs are in both")
    assert any(line.startswith("  GPU 1 of node 3: matmul") for line in lines)
    assert any(line.startswith("  new: GPU 1 of node 3") for line in lines)
