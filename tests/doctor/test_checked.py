from __future__ import annotations

from gpudoc.doctor.checked import _FACTS, ruled_out
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.facts.model import Driver, Gpu, Link, Machine, TorchBuild
from tests.doctor.causes.judge import report_of


def test_only_causes_whose_facts_are_there_are_ruled_out():
    assert ruled_out(Machine(), ()) == ()
    machine = Machine(driver=Driver(module_version="550.54.15"), torch=TorchBuild(cuda_version=(12, 4)))
    assert ruled_out(machine, ()) == ("driver_too_old",)
    assert ruled_out(machine, {"driver_too_old"}) == ()


def test_a_fact_of_gpus_must_be_that_of_each():
    linked = Gpu(index=0, link=Link(width=16, width_max=16))
    assert ruled_out(Machine(gpus=(linked,)), ()) == ("pcie_link_degraded",)
    assert ruled_out(Machine(gpus=(linked, Gpu(index=1))), ()) == ()
    assert ruled_out(Machine(gpus=()), ()) == ()


def test_each_names_a_cause_that_exists():
    assert set(_FACTS) <= set(CATALOGUE)


def test_a_log_of_losses_rules_nothing_out_and_is_healthy():
    report = report_of("Epoch 1 step 2 loss 3.0\nEpoch 1 step 3 loss 2.5")
    assert (report.verdict, report.passed) == ("healthy", ())


def test_a_report_of_versions_rules_out_what_they_settle():
    report = report_of(
        "PyTorch version: 2.6.0+cu124\nCUDA used to build PyTorch: 12.4\nNvidia driver version: 560.35.03"
    )
    assert report.verdict == "healthy"
    assert set(report.passed) == {"cpu_only_torch", "wrong_accelerator_build", "driver_too_old"}
