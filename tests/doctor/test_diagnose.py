from __future__ import annotations

import dataclasses

import pytest

from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.examine import examine_text
from gpudoc.doctor.model import Card, Cause, Evidence, Finder, Finding, Observation, Remedy, Skip
from gpudoc.facts.model import Absent, Driver, Gpu, Machine
from tests.machines.built import gpu, machine


def cause(name, explains=()):
    return Cause(
        id=name,
        family="environment",
        title=f"{name} title",
        meaning="m",
        why="w",
        fix=lambda _: (Remedy(say="do it"),),
        sources=("https://example.org",),
        explains=explains,
    )


def finder(name, *answers, needs=()):
    return Finder(id=name, find=lambda _: iter(answers), needs=needs)


def finding(name, confidence=0.9, severity="broken", fact="f"):
    return Finding(id=name, confidence=confidence, severity=severity, evidence=(Observation(fact, "v", "here"),))


def judge(finders, causes, machine=None, **more):
    evidence = Evidence(source="machine", machine=machine or Machine())
    return diagnose(evidence, finders=finders, catalogue={c.id: c for c in causes}, **more)


def test_a_consequence_moves_under_its_root_even_when_it_is_surer():
    finders = [finder("leaf", finding("leaf", 0.95)), finder("root", finding("root", 0.7))]
    report = judge(finders, [cause("root", explains=("leaf",)), cause("leaf")])
    assert [f.id for f in report.findings] == ["root"]
    assert report.findings[0].explains == ("leaf title",)
    assert report.verdict == "broken"


def test_an_unsure_root_takes_nothing_under_it():
    finders = [finder("leaf", finding("leaf", 0.9)), finder("root", finding("root", 0.3))]
    report = judge(finders, [cause("root", explains=("leaf",)), cause("leaf")])
    assert [f.id for f in report.findings] == ["leaf", "root"]


def test_two_signs_of_one_cause_become_one_surer_finding_with_both_as_evidence():
    report = judge(
        [finder("a", finding("a", 0.6, fact="one")), finder("a", finding("a", 0.5, fact="two"))], [cause("a")]
    )
    assert len(report.findings) == 1
    assert report.findings[0].confidence == 0.8
    assert [o.fact for o in report.findings[0].evidence] == ["one", "two"]


def test_a_missing_fact_skips_with_its_reason_and_a_crash_leaves_the_others_alone():
    def burst(_):
        raise RuntimeError("boom")
        yield

    machine = Machine(driver=Driver(nvml_code=Absent("no permission")))
    finders = [
        finder("needy", finding("needy"), needs=("driver.nvml_code",)),
        Finder(id="bad", find=burst),
        finder("unsure", Skip("nothing to look at")),
        finder("fine"),
    ]
    report = judge(finders, [cause(n) for n in ("needy", "bad", "unsure", "fine")], machine)
    assert {s.id: s.because for s in report.skipped} == {
        "needy": "driver.nvml_code: no permission",
        "unsure": "nothing to look at",
    }
    assert report.crashed[0].id == "bad"
    assert "boom" in report.crashed[0].error
    assert report.passed == ("fine",)
    assert report.verdict == "unknown", "a judgement that crashed is not a clean bill of health"


def test_a_cause_is_not_passed_while_a_finder_of_the_machine_lacked_its_fact():
    finders = [finder("a", needs=("gpus",)), finder("a")]
    report = judge(finders, [cause("a")])
    assert report.passed == ()
    assert [(skip.id, skip.because) for skip in report.skipped] == [("a", "gpus: not read")]


@pytest.mark.parametrize(
    "how", ["ended with code 3", "the machine is too busy; it was still working after 8 s", "TypeError: x"]
)
def test_a_probe_of_the_driver_that_died_half_way_is_no_health(how):
    facts = dataclasses.replace(machine(gpu(0), Gpu(index=1)), probe_failures={"nvml": how})
    report = diagnose(Evidence(source="machine", machine=facts))
    assert report.verdict == "unknown"
    assert [(crash.id, crash.error) for crash in report.crashed] == [("probe nvml", how)]
    assert diagnose(Evidence(source="machine", machine=machine())).verdict == "healthy"


def test_a_fault_on_one_gpu_and_another_gpu_that_was_not_checked_are_both_told():
    report = judge([finder("a", finding("a"), Skip("GPU 1: no permission"))], [cause("a")])
    assert [f.id for f in report.findings] == ["a"]
    assert [(skip.id, skip.because) for skip in report.skipped] == [("a", "GPU 1: no permission")]


def test_the_catalogue_fills_what_the_finder_left_empty_and_ignore_drops():
    report = judge([finder("a", finding("a")), finder("b", finding("b"))], [cause("a"), cause("b")], ignore=("b",))
    (only,) = report.findings
    assert (only.title, only.why, only.fix[0].say, only.url) == ("a title", "w", "do it", "https://example.org")


LINE = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def seen(confidence, value, origin, fact="kernel log"):
    return Finding(id="a", confidence=confidence, evidence=(Observation(fact, value, origin),))


@pytest.mark.parametrize(
    ("other", "sure"),
    [
        # the line itself, and the line with the date before it, read out of the text that holds it
        (seen(0.8, LINE, "line 1", fact="text"), 0.9),
        (seen(0.8, f"[ 12.5] {LINE}", "line 1", fact="text"), 0.9),
        (seen(0.8, "the host sees no device at 3b:00.0", "line 2"), 0.98),
    ],
)
def test_one_line_read_twice_is_one_sign_and_two_lines_are_two(other, sure):
    for pair in ((seen(0.9, LINE, "kernel log"), other), (other, seen(0.9, LINE, "kernel log"))):
        (root,) = judge([finder("a", *pair)], [cause("a")]).findings
        assert root.confidence == sure
        assert len(root.evidence) == 2


def test_a_count_that_is_alike_by_chance_is_a_sign_of_its_own():
    pair = (seen(0.6, "1", "NVML", fact="GPU 0 rows"), seen(0.5, "1", "NVML", fact="GPU 1 rows"))
    (root,) = judge([finder("a", *pair)], [cause("a")]).findings
    assert root.confidence == 0.8


def test_severity_orders_before_confidence_and_decides_the_verdict():
    report = judge(
        [finder("w", finding("w", 0.99, "warning")), finder("b", finding("b", 0.6))], [cause("w"), cause("b")]
    )
    assert [f.id for f in report.findings] == ["b", "w"]
    assert judge([finder("w", finding("w", 0.9, "warning"))], [cause("w")]).verdict == "warning"
    assert judge([finder("i", finding("i", 0.9, "info"))], [cause("i")]).verdict == "healthy"


def test_two_findings_of_one_cause_name_each_card_once():
    by_index = Card(index=1, pci_address="0000:3b:00.0")
    by_address = Card(pci_address="0000:3b:00.0")
    other = Card(index=0)
    found = [Finding(id="leaf", confidence=0.5, evidence=(), cards=c) for c in ((by_index,), (by_address, other))]
    finders = [Finder(id="leaf", find=lambda _, f=f: iter([f])) for f in found]
    asked = []
    told = dataclasses.replace(cause("leaf"), fix=lambda setting: asked.append(setting.cards) or ())
    assert judge(finders, [told]).findings[0].cards == (by_index, other)
    assert asked == [(by_index, other)]


def test_the_words_of_a_live_machine_rule_nothing_out():
    from gpudoc.doctor.examine import examine_machine
    from gpudoc.facts.model import Machine, TorchBuild

    said = examine_machine(Machine(torch=TorchBuild(import_error="ImportError: strange")))
    silent = examine_machine(Machine(torch=TorchBuild()))
    assert "label_out_of_range" not in said.passed
    assert set(said.passed) <= set(silent.passed)


def test_a_question_about_a_machine_on_which_nothing_fails_breaks_nothing():
    asked = (
        b"My machine has 64 GB RAM and an RTX 3090 with 24 GB VRAM, torch 2.3. Is that enough for training this model?"
    )
    report = examine_text([("asked.txt", asked)])
    assert report.verdict != "broken"
    assert {finding.severity for finding in report.findings} <= {"info"}
