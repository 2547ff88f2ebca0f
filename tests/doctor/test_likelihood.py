from __future__ import annotations

import pytest

from gpudoc.doctor import likelihood
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.likelihood import calibrated, guess, likely_causes, weight
from gpudoc.doctor.model import Evidence, Finder, Finding, Observation
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.facts.readers import read
from gpudoc.knowledge.wording import HEALTHY, OTHER, Likelihood
from tests.doctor.causes.judge import report_of

STORAGE = (
    "The images lie on a network share (NFS) and every file is read from there; reading the files of an epoch takes "
    "hours, and the GPU waits for the disk. When I copy the data set to the local SSD it is fast."
)
LOG = "".join(f"Epoch 1 step {step} loss {3 - step / 100:.2f}\n" for step in range(40))


@pytest.fixture
def likely(monkeypatch):
    """What the words are taken to say."""

    def say(*rows: tuple[str, float], words: tuple[str, ...] = SIGNS) -> None:
        found = [Likelihood(cause, share, share, words) for cause, share in rows]
        monkeypatch.setattr(likelihood, "weigh", lambda text, facts: found)

    return say


def guesses(text: str, *found: Finding) -> list[Finding]:
    reading = read(text)
    return list(guess(reading.text, likely_causes(reading), found, CATALOGUE))


SIGNS = ("dict", "until")
TOLD = "My epochs are strange.\nIt keeps them in a dict, I think,\nuntil the end comes. ***"


def test_a_report_in_somebodys_own_words_gets_its_likeliest_cause_with_the_lines_that_spoke_for_it():
    report = report_of(STORAGE)
    first = report.findings[0]
    assert first.id == "slow_storage"
    assert 0.5 <= first.confidence < 1


def test_a_guess_is_information_and_rests_on_whole_lines(likely):
    likely(("cpu_only_torch", 0.7), ("slow_storage", 0.2), ("port_in_use", 0.1))
    first, second = guesses(TOLD)
    assert [(one.id, one.severity, one.is_guess) for one in (first, second)] == [
        ("cpu_only_torch", "info", True),
        ("slow_storage", "info", True),
    ]
    assert [(seen.value, seen.origin) for seen in first.evidence] == [
        ("It keeps them in a dict, I think,", "line 2"),
        ("until the end comes. ***", "line 3"),
    ]


def test_of_a_complaint_the_share_of_what_is_healthy_goes_to_the_causes(likely):
    likely(("cpu_only_torch", 0.4), (HEALTHY, 0.35), ("slow_storage", 0.25))
    first, second = guesses(TOLD)
    assert (first.id, second.id) == ("cpu_only_torch", "slow_storage")
    assert first.confidence > 0.4


CALM = "Hi, thanks. How many hours does one epoch of it take you on that card?"
ASKED = "Does it read from NFS into a dict until it ends?"
ILL = "Is something wrong with them, or are they in a dict until the end of it?"
SAID = "The run keeps what it reads from NFS in a dict until the end of it."


@pytest.mark.parametrize(("text", "health", "is_ill"), [
    # a plain question is trouble where hardly a word sounds healthy, and something is stated that may be trouble
    (CALM, 0.01, False), (ASKED, 0.1, False), (ASKED, 0.01, True),
    # who asks and complains is well only where nearly all words sound so, and states no trouble
    (ILL, 0.95, False), (ILL, 0.5, True), (ILL.replace("them", "NFS"), 0.95, True),
    # who does neither is in trouble where the words are
    (SAID, 0.2, False), (SAID, 0.1, True), (SAID.replace("NFS", "us"), 0.1, False),
])  # fmt: skip
def test_how_likely_health_is_decides_by_what_somebody_asks_and_complains_of(likely, text, health, is_ill):
    likely(("slow_storage", 1 - health), (HEALTHY, health))
    report = report_of(text)
    assert any(one.is_guess for one in report.findings) is is_ill
    assert (report.verdict == "healthy") <= (not is_ill)


def test_a_gpu_that_torch_does_not_see_is_a_complaint_without_a_word_of_one(likely):
    likely(("cpu_only_torch", 0.7), words=("dict", "until"))
    smi = (
        "+-----------------------------------------------------------------------------+\n"
        "| NVIDIA-SMI 461.72       Driver Version: 461.72       CUDA Version: 11.2     |\n"
        "|-------------------------------+----------------------+----------------------+\n"
        "| GPU  Name            TCC/WDDM | Bus-Id        Disp.A | Volatile Uncorr. ECC |\n"
        "| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |\n"
        "|===============================+======================+======================|\n"
        "|   0  GeForce GTX 105... WDDM  | 00000000:01:00.0 Off |                  N/A |\n"
        "| N/A   61C    P8    N/A /  N/A |     78MiB /  4096MiB |      0%      Default |\n"
        "+-------------------------------+----------------------+----------------------+\n"
    )
    text = f"torch.cuda.is_available() is False\n{smi}it is in a dict until the end"
    report = report_of(text)
    assert report.verdict == "unknown"
    assert [one.id for one in report.findings if one.is_guess] == ["cpu_only_torch"]


@pytest.mark.parametrize("words", [("dict",), ("memory", "gpu", "training"), ("keeps", "keep")])
def test_one_sign_is_no_guess_nor_are_words_of_every_report(likely, words):
    likely(("cpu_only_torch", 0.7), words=words)
    assert guesses(TOLD + " GPU memory in training") == []


def test_what_was_found_is_not_said_again_and_what_is_hardly_likely_not_at_all(likely):
    likely(("cpu_only_torch", 0.9), ("slow_storage", 0.1))
    assert guesses(TOLD, Finding(id="cpu_only_torch", confidence=0.5, evidence=())) == []
    likely(("cpu_only_torch", 0.25))
    assert guesses(TOLD) == []
    likely((OTHER, 0.45), ("cpu_only_torch", 0.6))
    assert guesses(TOLD) == []


@pytest.mark.parametrize("text", [
    TOLD.replace("are strange", "are fine"),
    f"Traceback (most recent call last):\nValueError: no\n{TOLD.replace('My epochs are strange.', '')}",
    f"{TOLD}\nEdit: it works now, thanks!",
    TOLD.replace("My epochs are strange.", "My epochs are not strange any more."),
])  # fmt: skip
def test_words_that_describe_no_trouble_are_no_reason_to_guess(likely, text):
    likely(("slow_storage", 0.9))
    assert not [f for f in report_of(text).findings if f.is_guess]


def test_a_text_with_an_exception_that_a_finding_explains_gets_no_guess(likely):
    likely(("slow_storage", 0.9))
    weak = Finding(id="oom_capacity", confidence=0.5, evidence=())
    finders = [Finder(id="x", find=lambda _: iter([weak]), reads="text")]

    def judged(text: str) -> list[str]:
        reading = read(text)
        evidence = Evidence(source="file", machine=reading.machine, reading=reading)
        return [f.id for f in diagnose(evidence, finders=finders).findings]

    assert judged(TOLD) == ["slow_storage", "oom_capacity"]
    assert judged(f"{TOLD}\nTraceback (most recent call last):\nValueError: no") == ["oom_capacity"]


@pytest.mark.parametrize(("confidence", "order"), [(0.65, ["oom_capacity", "slow_storage"]), (0.9, ["oom_capacity"])])
def test_a_guess_never_stands_above_what_a_finder_is_sure_of(likely, confidence, order):
    likely(("slow_storage", 0.95))
    found = Finding(id="oom_capacity", confidence=confidence, evidence=())
    finders = [Finder(id="x", find=lambda _: iter([found]), reads="text")]
    reading = read(TOLD)
    report = diagnose(Evidence(source="file", machine=reading.machine, reading=reading), finders=finders)
    assert [f.id for f in report.findings] == order


@pytest.mark.parametrize(
    ("guess", "order", "verdict"),
    [(0.95, ["slow_storage", "oom_capacity"], "unknown"), (0.4, ["oom_capacity", "slow_storage"], "broken")],
)
def test_a_candidate_is_above_words_where_it_is_shown_as_surer_and_else_proves_nothing(likely, guess, order, verdict):
    likely(("slow_storage", guess))
    found = Finding(id="oom_capacity", severity="broken", confidence=0.5, evidence=())
    finders = [Finder(id="x", find=lambda _: iter([found]), reads="text")]
    reading = read(TOLD)
    report = diagnose(Evidence(source="file", machine=reading.machine, reading=reading), finders=finders)
    assert ([f.id for f in report.findings], report.verdict) == (order, verdict)
    # the screen begins with the finding that the verdict is of
    assert (report.findings[0].severity == "broken") == (verdict == "broken")


@pytest.mark.parametrize(("fact", "verdict"), [("text", "unknown"), ("allocator", "broken")])
def test_what_only_words_say_and_is_less_likely_than_not_breaks_nothing(likely, fact, verdict):
    likely(("slow_storage", 0.25), ("nccl_p2p_hang", 0.2))
    seen = (Observation(fact, "until the end comes", "line 3"),)
    found = Finding(id="nccl_p2p_hang", severity="broken", confidence=0.42, evidence=seen)
    finders = [Finder(id="x", find=lambda _: iter([found]), reads="text")]
    reading = read(TOLD)
    report = diagnose(Evidence(source="file", machine=reading.machine, reading=reading), finders=finders)
    assert (report.findings[0].id, report.verdict) == ("nccl_p2p_hang", verdict)


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


def test_a_guess_leaves_the_verdict_unknown(likely):
    likely(("slow_storage", 0.9), ("too_few_workers", 0.2))
    report = report_of(TOLD)
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
    # what stands below is never shown as surer
    assert report.findings[1].confidence == report.findings[0].confidence < 0.9
    # what this machine shows is told by no words
    assert [f.confidence for f in machine.findings] == [0.9, 0.6]


UNHEARD = "The loop needs 0.5 s for 3 batches, of which 0.4 s go into many small files of a network share (NFS)."


def trouble(monkeypatch, healthy: float, sure: float, facts: tuple[str, ...]) -> list[Finding]:
    rows = [Likelihood("slow_storage", 1 - healthy, sure, SIGNS, facts), Likelihood(HEALTHY, healthy, healthy, ())]
    monkeypatch.setattr(likelihood, "weigh", lambda text, facts: rows)
    return [one for one in report_of(UNHEARD).findings if one.is_guess]


def test_words_and_a_fact_that_tell_of_trouble_are_a_complaint_and_the_fact_is_shown(monkeypatch):
    monkeypatch.setattr(likelihood, "rarity", lambda name: 3.0)
    facts = ("stated:slow-disk", "stated:small-reads")
    [one] = trouble(monkeypatch, 0.01, 0.9, facts)
    assert one.id == "slow_storage"
    assert [seen.value for seen in one.evidence] == [UNHEARD]
    assert report_of(UNHEARD).verdict == "unknown"


@pytest.mark.parametrize(("healthy", "sure", "facts"), [
    (0.2, 0.9, ("stated:slow-disk",)),
    (0.01, 0.5, ("stated:slow-disk",)),
    (0.01, 0.9, ()),
    (0.01, 0.9, ("kind:torch_report",)),
    (0.01, 0.9, ("stated:several-gpus", "stated:windows")),
])  # fmt: skip
def test_what_may_be_healthy_is_unsure_or_states_no_fact_tells_of_no_trouble(monkeypatch, healthy, sure, facts):
    monkeypatch.setattr(likelihood, "rarity", lambda name: 3.0)
    assert not trouble(monkeypatch, healthy, sure, facts)
    assert report_of(UNHEARD).verdict != "unknown" or not report_of(UNHEARD).findings


@pytest.mark.parametrize(
    "text", ["torch.cuda.is_available() is False", "torch.cuda.is_available() is False but nvidia-smi works"]
)
def test_a_message_of_many_causes_stands_behind_words_that_are_far_surer_of_another_and_proves_nothing(text):
    report = report_of(text)
    first, *others = report.findings
    assert (report.verdict, first.id, first.is_guess) == ("unknown", "cpu_only_torch", True)
    assert first.confidence >= 0.8
    assert all(one.severity == "info" and one.confidence < 0.5 for one in others)
