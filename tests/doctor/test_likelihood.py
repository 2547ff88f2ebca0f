from __future__ import annotations

import pytest

from gpudoc.doctor import likelihood
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.likelihood import calibrated, guess, is_of_a_fault, likely_causes, weight
from gpudoc.doctor.model import Evidence, Finder, Finding
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.facts.readers import read
from gpudoc.knowledge.wording import HEALTHY, Likelihood
from tests.doctor.causes.judge import report_of

STORAGE = (
    "The images lie on a network share (NFS) and every file is read from there; reading the files of an epoch takes "
    "hours, and the GPU waits for the disk. When I copy the data set to the local SSD it is fast."
)
LOG = "".join(f"Epoch 1 step {step} loss {3 - step / 100:.2f}\n" for step in range(40))


@pytest.fixture
def likely(monkeypatch):
    """What the words are taken to say."""

    def say(*rows: tuple[str, float]) -> None:
        found = [Likelihood(cause, share, share, ("disk",)) for cause, share in rows]
        monkeypatch.setattr(likelihood, "weigh", lambda text, facts: found)

    return say


# what is told at some length
LONG = " ".join(f"word{chr(97 + n)}" for n in range(24)) + " a disk"


def told(text: str, *found: Finding, least: float = 0.0) -> dict[str, str]:
    reading = read(text)
    guesses = guess(reading.text, likely_causes(reading), found, CATALOGUE, least=least)
    return {one.id: one.severity for one in guesses}


def test_a_report_in_somebodys_own_words_gets_its_likeliest_cause_with_the_words_that_spoke_for_it():
    report = report_of(STORAGE)
    first = report.findings[0]
    assert first.id == "slow_storage"
    assert first.severity == CATALOGUE["slow_storage"].severity == "warning"
    assert 0.5 <= first.confidence < 1


def test_a_cause_that_is_likelier_than_not_is_said_with_its_severity_and_the_others_are_candidates(likely):
    likely(("cpu_only_torch", 0.7), ("slow_storage", 0.2), ("port_in_use", 0.06), ("oom_capacity", 0.04))
    assert told(LONG) == {"cpu_only_torch": "broken", "slow_storage": "info", "port_in_use": "info"}
    # a few words may be anybody's
    assert told("a disk")["cpu_only_torch"] == "info"
    reading = read("a line\nand a Disk")
    (seen,) = guess(reading.text, likely_causes(reading), (), CATALOGUE)[0].evidence
    assert (seen.fact, seen.value, seen.origin) == ("words", "Disk", "line 2")


def test_below_a_mechanism_that_shows_itself_words_are_candidates_only(likely):
    likely(("cpu_only_torch", 0.9), ("slow_storage", 0.1))
    shown = Finding(id="oom_capacity", confidence=0.9, evidence=())
    unsure = Finding(id="oom_capacity", confidence=0.6, evidence=())
    assert told("a disk", shown) == {"cpu_only_torch": "info", "slow_storage": "info"}
    assert told(LONG, unsure)["cpu_only_torch"] == "broken"


def test_what_was_found_is_not_said_again(likely):
    likely(("cpu_only_torch", 0.9), ("slow_storage", 0.1))
    assert "cpu_only_torch" not in told("a disk", Finding(id="cpu_only_torch", confidence=0.6, evidence=()))


def test_where_nothing_fails_words_must_be_those_of_a_fault(likely):
    likely(("cpu_only_torch", 0.2), ("slow_storage", 0.1))
    assert told("a disk", least=0.5) == {}
    assert told("a disk")
    likely((HEALTHY, 0.6), ("cpu_only_torch", 0.4))
    assert told("a disk") == {}


def test_a_cause_beside_a_likelier_absence_of_faults_is_never_more_than_a_candidate(likely):
    likely((HEALTHY, 0.45), ("cpu_only_torch", 0.6))
    assert told("a disk") == {"cpu_only_torch": "info"}


def test_a_training_log_in_which_nothing_is_wrong_is_left_alone():
    report = report_of(LOG)
    assert report.verdict == "healthy"
    assert not report.findings


def test_a_question_about_an_option_is_no_fault():
    report = report_of(
        "How do I change the learning rate schedule in the config file? I would like a cosine schedule with warmup and "
        "to train on my own data set of images; the problem is that I do not know the name of the option."
    )
    assert report.verdict in ("healthy", "unknown")
    assert {f.severity for f in report.findings} <= {"info"}


def test_a_guess_that_may_be_wrong_leaves_the_verdict_unknown(likely):
    likely(("slow_storage", 0.4), ("too_few_workers", 0.2))
    report = report_of("My epochs take so long, I read from a disk")
    assert report.verdict == "unknown"
    assert [f.id for f in report.findings] == ["slow_storage", "too_few_workers"]


def test_a_cause_that_is_ignored_is_not_guessed():
    reading = read(STORAGE)
    report = diagnose(Evidence(source="file", machine=reading.machine, reading=reading), ignore=("slow_storage",))
    assert "slow_storage" not in [f.id for f in report.findings]


def test_words_that_speak_for_a_finding_put_it_first_and_leave_its_confidence():
    likely = [Likelihood("cpu_only_torch", 0.5, 0.5, ()), Likelihood("port_in_use", 0.4, 0.4, ())]
    other = Finding(id="oom_capacity", confidence=0.6, evidence=())
    backed = Finding(id="cpu_only_torch", confidence=0.5, evidence=())
    assert weight(other, likely) == 0.6
    assert weight(backed, likely) == 0.75


def test_a_finding_is_shown_as_sure_as_the_words_beside_it_leave_it_and_a_note_as_it_is():
    weak = Finding(id="port_in_use", confidence=0.5, evidence=())
    strong = Finding(id="oom_capacity", confidence=0.9, evidence=())
    note = Finding(id="slow_storage", severity="info", confidence=0.4, evidence=())

    def shown(*rows: tuple[str, float]) -> list[float]:
        likely = [Likelihood(cause, share, share, ()) for cause, share in rows]
        return [one.confidence for one in calibrated([weak, strong, note], likely)]

    silent = shown()
    for_weak = shown(("port_in_use", 0.9), ("oom_capacity", 0.05))
    for_strong = shown(("oom_capacity", 0.9), ("port_in_use", 0.05), ("slow_storage", 0.05))
    assert for_strong[0] < silent[0] < for_weak[0]
    assert for_weak[1] < silent[1] < for_strong[1]
    assert silent[0] < silent[1]
    assert {said[2] for said in (silent, for_weak, for_strong)} == {0.4}


def test_words_change_how_sure_a_finding_of_a_text_is_shown_and_neither_its_place_nor_the_verdict(likely):
    first = Finding(id="oom_capacity", confidence=0.9, evidence=())
    second = Finding(id="port_in_use", confidence=0.6, evidence=())
    finders = [Finder(id=one.id, find=lambda _, one=one: iter([one]), reads="text") for one in (second, first)]
    likely(("port_in_use", 0.5), ("oom_capacity", 0.02))
    reading = read("a disk")

    def judged(source):
        return diagnose(Evidence(source=source, machine=reading.machine, reading=reading), finders=finders)

    report, machine = judged("file"), judged("machine")
    assert [f.id for f in report.findings] == [f.id for f in machine.findings] == ["oom_capacity", "port_in_use"]
    assert report.verdict == machine.verdict == "broken"
    shown = [f.confidence for f in report.findings]
    assert shown[0] < shown[1]
    # what this machine shows is told by no words
    assert [f.confidence for f in machine.findings] == [0.9, 0.6]


def test_a_text_in_which_enough_is_found_is_as_sure_as_its_words_leave_it_and_nothing_is_guessed(likely):
    causes = ("cpu_only_torch", "oom_capacity", "port_in_use")
    found = [Finding(id=cause, confidence=0.9, evidence=()) for cause in causes]
    likely(("slow_storage", 0.6), ("oom_capacity", 0.3))
    reading = read("a disk")
    finders = [Finder(id="x", find=lambda _: iter(found), reads="text")]
    report = diagnose(Evidence(source="file", machine=reading.machine, reading=reading), finders=finders)
    assert {f.id for f in report.findings} == set(causes)
    assert len({f.confidence for f in report.findings}) == 2
    assert 0.9 not in {f.confidence for f in report.findings}


def test_a_text_of_some_length_is_of_a_fault_when_hardly_any_share_is_left_for_none():
    long = read(LONG).text
    fault = Likelihood("slow_storage", 0.96, 0.9, ())
    assert is_of_a_fault(long, [fault, Likelihood(HEALTHY, 0.02, 0.01, ()), Likelihood("other", 0.02, 0.01, ())])
    assert not is_of_a_fault(long, [fault, Likelihood(HEALTHY, 0.03, 0.01, ()), Likelihood("other", 0.03, 0.01, ())])
    assert not is_of_a_fault(read("a few words of a slow disk").text, [fault])
    assert not is_of_a_fault(long, [])
