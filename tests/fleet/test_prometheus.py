"""The text format, line by line; what was not measured has no sample."""

from __future__ import annotations

import re
from dataclasses import replace

from gpudoc.fleet.prometheus import to_prometheus
from gpudoc.fleet.record import FleetNode, Measure, MissingPart, Spot
from gpudoc.fleet.verdict import judge
from tests.fleet.simulated import Plan, again, build

LABEL = r'[a-z_]+="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"^[a-z_]+(?:\{{{LABEL}(?:,{LABEL})*\}})? [-+0-9.e]+$")


def text_of(record):
    return to_prometheus(record, judge(record))


def record_of():
    record, truth = build(Plan(nodes=10, gpus=2, seed=1, slow={Spot(3, 1): 15.0}, only=("matmul", "loader")))
    record = again(record, truth)
    nodes = (*record.nodes, FleetNode(missing=MissingPart("died", "gone")))
    return replace(record, nodes=nodes)


def test_every_line_is_a_sample_or_says_what_follows():
    text = text_of(record_of())
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith(("# HELP gpudoc_fleet_", "# TYPE gpudoc_fleet_")) or SAMPLE.match(line), line


def test_each_metric_is_declared_once_before_its_samples_and_no_sample_stands_twice():
    lines = text_of(record_of()).splitlines()
    declared: list[str] = []
    seen: set[str] = set()
    for line in lines:
        if line.startswith("# TYPE "):
            declared.append(line.split()[2])
        elif not line.startswith("#"):
            assert re.split(r"[{ ]", line)[0] == declared[-1]
            series = line.rsplit(" ", 1)[0]
            assert series not in seen
            seen.add(series)
    assert len(declared) == len(set(declared)) == 6


def test_the_drained_node_the_silent_one_and_the_finding_are_there():
    text = text_of(record_of())
    assert 'gpudoc_fleet_drain{node="3",node_id="0003"} 1\n' in text
    assert 'gpudoc_fleet_drain{node="2",node_id="0002"} 0\n' in text
    assert 'gpudoc_fleet_node_answered{node="10",node_id=""} 0\n' in text
    assert re.search(
        r'gpudoc_fleet_finding\{node="3",.*gpu="1",.*id="gpu_slower_than_peers",severity="broken"\} 1', text
    )
    assert 'gpudoc_fleet_job_loss_share{state="now"} 0.' in text


def test_what_was_not_measured_has_no_sample_and_no_zero():
    assert not re.search(r'gpudoc_fleet_value\{node="10"', text_of(record_of()))


def test_a_value_that_would_break_the_line_is_escaped():
    record = record_of()
    odd = Measure(
        name="matmul", scope="gpu", unit="x", parameters={"dtype": 'a"b\\c\nd'}, readings=record.measures[0].readings
    )
    text = text_of(replace(record, measures=(odd,)))
    assert 'dtype="a\\"b\\\\c\\nd"' in text
    assert all(SAMPLE.match(line) for line in text.splitlines() if not line.startswith("#"))
