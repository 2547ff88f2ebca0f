from __future__ import annotations

import dataclasses

import pytest

from gpudoc.doctor import fleet
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Driver, Gpu, Host, Link, Machine, TorchBuild
from gpudoc.units import GIB, MIB


def node(driver="550.54.15", width=16, memory=512 * GIB, torch="2.6.0", num_gpus=8):
    gpus = tuple(
        Gpu(index=i, name="NVIDIA H100", memory_total_bytes=80 * GIB, link=Link(width=width, generation_max=5))
        for i in range(num_gpus)
    )
    return Machine(
        driver=Driver(module_version=driver),
        gpus=gpus,
        torch=TorchBuild(version=torch),
        host=Host(memory_total_bytes=memory),
    )


def report(machine):
    return diagnose(Evidence(source="machine", machine=machine), finders=(), catalogue={})


def compare(**machines):
    return fleet.compare([(name, report(m)) for name, m in machines.items()])


def test_machines_alike_have_no_difference_and_firmware_noise_is_none():
    result = compare(a=node(), b=node(memory=512 * GIB - 300 * MIB), c=node())
    assert (result.verdict, result.findings, result.source) == ("healthy", (), "fleet")


def test_the_odd_machine_is_named_with_its_value_and_that_of_the_others():
    result = compare(a=node(), b=node(), c=node(width=8, driver="535.54.03"), d=node())
    titles = [f.title for f in result.findings]
    assert "PCIe link differs: c" in titles
    assert "driver differs: c" in titles
    driver = next(f for f in result.findings if f.title.startswith("driver"))
    assert [o.value for o in driver.evidence] == ["c: 535.54.03", "550.54.15"]
    assert result.unexplained[0].value.startswith("c (2 differences)")


def test_a_missing_gpu_weighs_most():
    result = compare(a=node(), b=node(num_gpus=7), c=node(torch="2.5.0"))
    assert result.findings[0].title == "number of GPUs differs: b"
    assert result.verdict == "broken"


def test_of_two_neither_is_odd():
    (finding,) = compare(a=node(), b=node(torch="2.5.0")).findings
    assert "2 values on 2 machines" in finding.title


def test_a_broken_machine_brings_its_own_cause():
    bad = report(node())
    from gpudoc.doctor.model import Finding, Observation

    cause = Finding(id="gpu_ecc_error", confidence=0.9, title="ECC", evidence=(Observation("x", "y", "z"),))
    bad = dataclasses.replace(bad, verdict="broken", findings=(cause,))
    result = fleet.compare([("a", report(node())), ("b", bad)])
    assert result.findings[0].id == "gpu_ecc_error"
    assert result.findings[0].title == "b: ECC"


def test_one_report_is_nothing_to_compare_with():
    with pytest.raises(GpudocError):
        fleet.compare([("a", report(node()))])


def test_sixty_four_machines_are_compared_at_once():
    # comparing each machine's evidence anew with every other's would run into the suite's limit for one test
    result = fleet.compare([(f"n{i}", report(node(driver="1.0" if i == 40 else "2.0"))) for i in range(64)])
    assert result.findings[0].title == "driver differs: n40"
