"""Every scenario of the fault matrix: the expected cause first, and nothing above info on machines that are well."""

from __future__ import annotations

import pytest

from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence, Report
from gpudoc.facts.readers import intake
from tests.fakes.machine import FakeMachine
from tests.fakes.scenarios import FAULTS, HEALTHY, Scenario


def judge(scenario: Scenario, folder) -> Report:
    machine = FakeMachine(folder)
    scenario.build(machine)
    collected = machine.collect(deadlines=scenario.deadlines)
    reading = intake.read_machine(collected)
    return diagnose(Evidence(source="machine", machine=collected, reading=reading, expectation=scenario.expectation))


@pytest.mark.parametrize("scenario", FAULTS, ids=lambda s: s.name)
def test_the_root_cause_comes_first(scenario, tmp_path):
    report = judge(scenario, tmp_path / "machine")
    assert [(f.id, f.severity) for f in report.findings][:1] == [(scenario.cause, scenario.severity)]
    assert not report.crashed


@pytest.mark.parametrize("scenario", HEALTHY, ids=lambda s: s.name)
def test_a_machine_that_is_well_has_no_finding(scenario, tmp_path):
    report = judge(scenario, tmp_path / "machine")
    assert [(f.id, f.severity, f.evidence) for f in report.findings if f.severity != "info"] == []
    assert report.verdict == "healthy"
    assert not report.crashed


def test_the_matrix_is_as_large_as_promised():
    assert len({s.name for s in FAULTS}) == len(FAULTS) >= 60
    assert len({s.name for s in HEALTHY}) == len(HEALTHY) >= 12
