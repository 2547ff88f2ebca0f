"""What a judged record gives: documents, doctor's words, exit codes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpudoc.doctor import document
from gpudoc.errors import ExitCode
from gpudoc.fleet.documents import load_record
from gpudoc.fleet.record import Spot
from gpudoc.fleet.report import FleetReport, save_report
from tests.fleet.simulated import Plan, again, build


@pytest.fixture(scope="module")
def report():
    record, truth = build(Plan(nodes=12, gpus=4, seed=1, slow={Spot(3, 1): 15.0}, only=("matmul",)))
    return FleetReport.of(again(record, truth))


def test_the_document_holds_the_record_and_the_verdict_and_no_host(report):
    text = json.dumps(report.to_json())
    plain = json.loads(text)
    assert plain["schema"] == "gpudoc.fleet.v1"
    assert plain["verdict"]["word"] == "broken"
    assert plain["verdict"]["drain"] == [3]
    (found,) = plain["verdict"]["findings"]
    assert (found["at"], found["drain"], found["level"], found["confirmed"]) == ([[3, 1]], True, "gpu", True)
    assert plain["verdict"]["job"]["slowest"] == [[3, 1]]
    assert "cn00" not in text


def test_a_written_report_is_a_record_again(report, tmp_path):
    path = save_report(tmp_path / "fleet.json", report)
    assert FleetReport.of(load_record(path)).verdict.drained == (3,)


def test_a_name_that_ends_in_prom_is_written_for_prometheus(report, tmp_path):
    path = save_report(tmp_path / "fleet.prom", report)
    assert 'gpudoc_fleet_drain{node="3",node_id="0003"} 1\n' in path.read_text()


def test_as_doctors_report_it_is_a_whole_document_of_doctor(report):
    plain = document.dump(report.to_doctor())
    assert (plain["schema"], plain["source"], plain["verdict"]) == ("gpudoc.doctor.v1", "fleet", "broken")
    assert document.load(plain).findings[0].id == "gpu_slower_than_peers"


def test_what_was_not_judged_is_not_checked_and_never_passed():
    record, _ = build(Plan(nodes=1, gpus=2, seed=1, only=("matmul",)))
    told = FleetReport.of(replace(record, digests=())).to_doctor()
    assert told.verdict == "unknown"
    assert any("too few" in one.because for one in told.skipped)
    assert told.passed == ()


def test_a_part_of_which_one_gpu_was_not_measured_did_not_pass():
    record, _ = build(Plan(nodes=6, gpus=2, seed=1, only=("matmul", "device_copy")))
    assert "memory" in FleetReport.of(record).to_doctor().passed
    measures = tuple(replace(m, readings=m.readings[:-1]) if m.name == "device_copy" else m for m in record.measures)
    assert "memory" not in FleetReport.of(replace(record, measures=measures)).to_doctor().passed


def test_exit_codes(report):
    healthy = FleetReport.of(build(Plan(nodes=12, gpus=4, seed=2))[0])
    assert report.exit_code is ExitCode.BAD_ANSWER
    assert healthy.exit_code is ExitCode.OK
    assert FleetReport.of(replace(healthy.record, interrupted=True)).exit_code is ExitCode.INTERRUPTED
    assert FleetReport.of(healthy.record, healthy.record).exit_code is ExitCode.OK
