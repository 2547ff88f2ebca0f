"""Every scenario of the fault matrix: the expected cause first, and nothing above info on machines that are well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence, Report
from gpudoc.doctor.setting import describe
from gpudoc.facts.readers import intake
from tests.doctor.commands import check
from tests.fakes.machine import H100, MUST_ANSWER, QUESTIONS, FakeMachine
from tests.fakes.scenarios import FAULTS, HEALTHY, MODELS, Scenario

# of about 78 on a machine without a fault; a report that skips what it should check has fewer
FEWEST_PASSED = 60


def judge(scenario: Scenario, folder) -> Report:
    machine = FakeMachine(folder)
    scenario.build(machine)
    collected = machine.collect(deadlines=scenario.deadlines)
    reading = intake.read_machine(collected)
    return diagnose(Evidence(source="machine", machine=collected, reading=reading, expectation=scenario.expectation))


# each waits for a deadline; one of them is enough for every save
_HANGS = [scenario for scenario in FAULTS if "hangs" in scenario.name][1:]


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(s, marks=pytest.mark.slow) if s in _HANGS else s for s in FAULTS],
    ids=lambda s: s.name,
)
def test_the_root_cause_comes_first(scenario, tmp_path):
    report = judge(scenario, tmp_path / "machine")
    assert [(f.id, f.severity) for f in report.findings][:1] == [(scenario.cause, scenario.severity)]
    assert not report.crashed
    told = describe(Evidence(source="machine", machine=report.machine))
    for finding in report.findings:
        check(finding.fix, replace(told, cards=finding.cards), finding.id)


@pytest.mark.parametrize("scenario", HEALTHY, ids=lambda s: s.name)
def test_a_machine_that_is_well_has_no_finding(scenario, tmp_path):
    report = judge(scenario, tmp_path / "machine")
    assert [(f.id, f.severity, f.evidence) for f in report.findings if f.severity != "info"] == []
    assert report.verdict == "healthy"
    assert not report.crashed
    if scenario.skips is not None:
        assert {skipped.id for skipped in report.skipped} == scenario.skips
        assert len(report.passed) >= FEWEST_PASSED


@pytest.fixture(scope="module", params=[15, 16, 999])
def sick_one_by_one(request, tmp_path_factory):
    """GPU n answers question n with the code, the last GPU is well; and the code."""
    fake = FakeMachine(tmp_path_factory.mktemp("questions") / "machine")
    fake.driver()
    fake.gpus(H100, len(QUESTIONS) + 1)
    for index, question in enumerate(QUESTIONS):
        fake.error(question, request.param, index)
    fake.torch()
    return fake.collect(), request.param


CAUSES = {15: "gpu_fallen_off_bus", 16: "gpu_needs_reset", 999: "gpu_not_answering"}


@pytest.mark.parametrize("place", range(len(QUESTIONS)), ids=QUESTIONS)
def test_whatever_question_tells_of_a_sick_gpu_it_is_named(sick_one_by_one, place):
    collected, code = sick_one_by_one
    pair = (collected.gpus[place], collected.gpus[-1])
    bus = tuple(collected.pci[gpu.index] for gpu in pair)
    cuda = tuple(collected.driver.cuda_devices[gpu.index] for gpu in pair)
    machine = replace(collected, gpus=pair, pci=bus, driver=replace(collected.driver, cuda_devices=cuda))
    report = diagnose(Evidence(source="machine", machine=machine))
    if code == 999 and QUESTIONS[place] not in MUST_ANSWER:
        assert [f for f in report.findings if f.severity != "info"] == []
        return
    root = report.findings[0]
    assert (root.id, root.severity, report.verdict) == (CAUSES[code], "broken", "broken")
    assert [card.index for card in root.cards] == [place]
    assert root.evidence[0].fact.split(" (")[0] == f"GPU {place}"


def test_the_matrix_is_as_large_as_promised():
    assert len({s.name for s in FAULTS}) == len(FAULTS) >= 60
    assert len({s.name for s in HEALTHY}) == len(HEALTHY) >= 12
    assert len(MODELS) >= 12
    assert all(s.skips is not None for s in MODELS)
