"""The page: self-contained, without hosts, findings first, a map for each part and each measure."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from gpudoc.fleet.record import FleetRecord, Spot
from gpudoc.fleet.report import FleetReport
from gpudoc.render.fleet_page import render_page, save
from tests.fleet.simulated import Plan, again, build


@pytest.fixture(scope="module")
def page():
    plan = Plan(
        nodes=12, gpus=4, seed=1, slow={Spot(3, 1): 15.0}, corrupt={Spot(7, 0): 0.25}, only=("matmul", "loader")
    )
    record, truth = build(plan)
    record = again(record, truth)
    nodes = tuple(
        replace(n, versions={**n.versions, "nccl": "2.21.5"}) if i == 2 else n for i, n in enumerate(record.nodes)
    )
    return render_page(FleetReport.of(replace(record, nodes=nodes)))


class Headings(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self._in = [], False

    def handle_starttag(self, tag, attrs):
        self._in = tag == "h2"

    def handle_data(self, data):
        if self._in:
            self.found.append(data)
            self._in = False


def test_the_sections_stand_in_reading_order(page):
    parser = Headings()
    parser.feed(page)
    assert parser.found == [
        "What is odd, and what to do",
        "Heat maps, the oddest node first",
        "Every measure",
        "Software that differs",
        "How it was judged",
    ]


def test_findings_maps_and_software_are_there_and_no_host_nor_outside_address(page):
    assert "Drain: GPU 1 of node 3 is" in page
    assert "GPU 0 of node 7 computes wrong results without an error" in page
    # two loads of four products, their families, the loader, two sizes of pairs and their family
    assert page.count("<svg") == 8 + 2 + 1 + 3
    assert re.search(r"<td[^>]*>2\.21\.5</td>", page)
    assert "cn00" not in page
    assert page.count("<script") == 1, "the page's own"
    assert "https://" not in page.replace("http://www.w3.org", "")


def test_the_oddest_column_is_named_under_its_map(page):
    assert "Columns from the left: nodes 3, " in page
    assert "GPU 1 of node 3 1" in page


def test_an_empty_record_is_a_page_that_says_so(tmp_path):
    save(tmp_path / "fleet.html", FleetReport.of(FleetRecord(nodes=())))
    text = (tmp_path / "fleet.html").read_text()
    assert "gpudoc fleet: unknown" in text
    assert "Nothing odd was found, but not everything was judged" in text
