"""A saved record through doctor's outputs: its own JSON with the fleet beside it, Markdown, page, Prometheus."""

from __future__ import annotations

import json

import pytest

from gpudoc.fleet.record import Spot
from gpudoc.fleet.report import FleetReport
from gpudoc.render.doctor_output import Output
from gpudoc.render.fleet_record import show_saved
from tests.fleet.simulated import Plan, build


@pytest.fixture(scope="module")
def report():
    healthy, _ = build(Plan(nodes=12, gpus=4, seed=1, only=("matmul",)))
    slow, _ = build(Plan(nodes=12, gpus=4, seed=1, slow={Spot(3, 1): 15.0}, only=("matmul",)))
    return FleetReport.of(slow, healthy)


def test_json_is_doctors_document_with_the_fleets_verdict(report, capsys):
    show_saved(report, Output(json=True))
    plain = json.loads(capsys.readouterr().out)
    assert (plain["schema"], plain["source"]) == ("gpudoc.doctor.v1", "fleet")
    assert plain["findings"][0]["id"] == "gpu_slower_than_peers"
    assert plain["fleet"]["findings"][0]["at"] == [[3, 1]]
    assert plain["comparison"]["is_worse"] is True


def test_the_screen_is_that_of_a_run(report, capsys):
    show_saved(report, Output())
    assert capsys.readouterr().out.startswith("12 nodes, 48 GPUs: nothing to drain")


def test_markdown_names_the_finding(report, capsys):
    show_saved(report, Output(markdown=True))
    assert "`gpu_slower_than_peers`" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "begins"),
    [("a.prom", "# HELP gpudoc_fleet_value"), ("a.json", "{"), ("a.md", "**gpudoc doctor"), ("a.html", "<!doctype")],
)
def test_every_kind_of_file(report, tmp_path, capsys, name, begins):
    path = tmp_path / name
    output = Output(html=path) if name.endswith("html") else Output(out=path)
    show_saved(report, output)
    assert path.read_text().startswith(begins)
