from __future__ import annotations

from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Cause, Evidence, Finder, Finding, Observation, Remedy, Skip
from gpudoc.facts.model import Absent, Driver, Machine


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


def test_a_cause_checked_by_one_finder_is_passed_though_another_lacked_its_fact():
    finders = [finder("a", needs=("gpus",)), finder("a")]
    report = judge(finders, [cause("a")])
    assert report.passed == ("a",)
    assert not report.skipped


def test_the_catalogue_fills_what_the_finder_left_empty_and_ignore_drops():
    report = judge([finder("a", finding("a")), finder("b", finding("b"))], [cause("a"), cause("b")], ignore=("b",))
    (only,) = report.findings
    assert (only.title, only.why, only.fix[0].say, only.url) == ("a title", "w", "do it", "https://example.org")


def test_severity_orders_before_confidence_and_decides_the_verdict():
    report = judge(
        [finder("w", finding("w", 0.99, "warning")), finder("b", finding("b", 0.6))], [cause("w"), cause("b")]
    )
    assert [f.id for f in report.findings] == ["b", "w"]
    assert judge([finder("w", finding("w", 0.9, "warning"))], [cause("w")]).verdict == "warning"
    assert judge([finder("i", finding("i", 0.9, "info"))], [cause("i")]).verdict == "healthy"
