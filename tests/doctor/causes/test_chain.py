"""The chain as a whole: where it ends, what it then leaves unsaid, and that absence is never a verdict."""

import pytest

from gpudoc.doctor.causes.chain import CAUSES, FINDERS, LINKS, walk
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.model import Absent, Machine
from tests.machines.built import changed, gpu, known_facts, machine


def on(facts: Machine) -> Evidence:
    return Evidence(source="machine", machine=facts)


def answers(cause: str, facts: Machine) -> list[Finding | Skip]:
    (finder,) = [finder for finder in FINDERS if finder.id == cause]
    return list(finder.find(on(facts)))


def test_a_whole_chain_has_no_end():
    walked = walk(on(machine()))
    assert (walked.ended, walked.findings, walked.skips) == (len(LINKS), (), ())


def test_the_first_broken_link_hides_those_behind_it():
    facts = changed(changed(machine(), "driver.nvml_code", 18), "driver.cu_init_code", 803)
    assert [f.id for f in walk(on(facts)).findings] == ["driver_library_mismatch"]
    (skip,) = answers("libcuda_mismatch_803", facts)
    assert skip == Skip("not checked, because an earlier link failed: NVML")
    (root,) = answers("driver_library_mismatch", facts)
    assert "libcuda_mismatch_803" in root.explains


def test_a_warning_does_not_end_the_walk():
    half = machine(gpu(0), gpu(1, mig_enabled=True, mig_instances=0))
    facts = changed(half, "driver.cu_init_code", 802)
    assert [f.id for f in walk(on(facts)).findings] == ["mig_enabled_no_instance", "fabric_manager_not_running"]


def test_what_is_hidden_on_purpose_ends_the_walk_without_fault():
    facts = changed(changed(machine(), "environment", {"CUDA_VISIBLE_DEVICES": ""}), "driver.cu_init_code", 100)
    assert [(f.id, f.severity) for f in walk(on(facts)).findings] == [("visible_devices_hides_gpu", "info")]


def test_without_a_gpu_that_is_why_nothing_else_was_checked():
    facts = Machine(pci=(), nodes=(), environment={}, gpus=Absent("x"))
    assert answers("nouveau_loaded", facts) == [Skip("there is no GPU")]


def test_nothing_known_is_nothing_found():
    report = diagnose(on(Machine()), finders=FINDERS, catalogue={})
    assert report.findings == ()
    assert {"gpu_fallen_off_bus", "no_gpu_on_machine"} <= {skipped.id for skipped in report.skipped}


def test_each_cause_has_one_finder_and_a_link():
    assert len(set(CAUSES)) == len(CAUSES) == len(FINDERS)


@pytest.mark.parametrize("path", known_facts(machine(gpu(0), gpu(1))))
def test_a_fact_that_is_missing_is_never_taken_for_a_fault(path):
    facts = changed(machine(gpu(0), gpu(1)), path, Absent("no permission"))
    report = diagnose(on(facts))
    assert [f for f in report.findings if f.severity != "info"] == []
    assert not report.crashed
