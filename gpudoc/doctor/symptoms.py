"""The visible trouble that no cause explains, and the two facts that would decide it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from gpudoc.doctor.causes.sign import Listed
from gpudoc.doctor.model import Crashed, Evidence, Finding, Observation, observe
from gpudoc.doctor.remedies import advised_in
from gpudoc.facts.model import Absent, Machine, fact_at
from gpudoc.facts.readers.genre import PASTE
from gpudoc.facts.readers.model import CleanText, Reading, named_facts
from gpudoc.facts.readers.pace import read_pace
from gpudoc.frozen import dataclass
from gpudoc.knowledge.cause_rows import area_of, count_by_area
from gpudoc.knowledge.tables import read_list, read_table
from gpudoc.patterns import IGNORECASE, Pattern

_LAST_LINE = Pattern(
    r"(?m)^(?:E\s+)?((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Warning)\b)(?::\s*(.*))?$"
)
_TRACEBACK = Pattern(r"Traceback\s+\(most\s+recent\s+call\s+last\)")
_DEVICE_WORDS = Pattern(
    r"(?i)cuda|nvml|nvidia-smi\s+has\s+failed|nccl|cudnn|cublas|\bxid\b|gpu\s+(?:not|is\s+lost)|out\s+of\s+memory|"
    r"segmentation\s+fault|illegal\s+instruction|core\s+dumped|SIG(?:SEGV|KILL|BUS|ABRT)|0xC0000005|access\s+violation"
)
_FAILURE_WORDS = Pattern(
    r"(?i)\berror\b|\bfail(?:ed|ure)\b|exception|\bkilled\b|\babort(?:ed)?\b|not\s+available|returns?\s+false|"
    r"segmentation\s+fault|illegal\s+instruction|core\s+dumped|0xC0000005|access\s+violation"
)
_SLOW = Listed("slow")
_FAULTS_OF_NOBODY = 3
_STEP = Pattern(r"(?i)\b(?:epoch|step|iter(?:ation)?)s?\b\W{0,4}\d|\bloss\b\W{0,4}\d")
# a log has become slow if its last steps take 1.8 times as long as its first, and it prints at least 5 times
_SLOWED, _FEWEST_TIMES = 1.8, 5
# words alone, without a fact, give nothing to judge
_WORDS_ONLY = {"gpu_report", "torch_report"}
# levels in a log mark the lines that do not report a failure
_INFORMS = Pattern(r"\[(?:INFO|DEBUG|NOTICE)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unexplained:
    """Whether something is wrong that no finding explains, the signs of it, and what to look at next."""

    wrong: bool = False
    observations: tuple[Observation, ...] = ()
    deciding_facts: tuple[str, ...] = ()


def _wrong(known: str, *seen: Observation) -> Unexplained:
    """The state that something is wrong; `known` names the list in deciding.yaml of the facts to collect next."""
    return Unexplained(wrong=True, observations=seen, deciding_facts=read_list("deciding.yaml", known))


def is_of_no_matter(finding: Finding) -> bool:
    """Whether the finding is a message that stops nothing and that a program prints in each good run, too."""
    return finding.severity == "info" and area_of(finding.id) == "warnings"


def look(evidence: Evidence, findings: Sequence[Finding], crashed: Sequence[Crashed]) -> Unexplained:
    """Remaining signs of trouble if no finding is 'broken'; a text in which nothing is recognised is trouble too."""
    if any(f.severity == "broken" for f in findings):
        return Unexplained()
    if not isinstance(evidence.machine.kernel_log, Absent):
        from gpudoc.doctor.causes.kernel_events import unknown_numbers

        if numbers := unknown_numbers(evidence):
            return _wrong("numbers", *numbers)
    if crashed:
        return _wrong("crashed", *(Observation(f"check {c.id}", c.error, "gpudoc") for c in crashed))
    if evidence.source == "file" and evidence.reading is not None:
        return _in_text(evidence, findings)
    return _on_machine(evidence, findings) if evidence.source == "machine" else Unexplained()


def no_patient(evidence: Evidence, findings: Sequence[Finding]) -> Unexplained | None:
    """Why the text is not about a machine at all: documentation, or a program; None for a person's paste.

    Impersonal chapters count as documentation if they name faults of several areas: no machine has them all.
    """
    kind = evidence.reading.kind if evidence.reading is not None else PASTE
    named = [f.id for f in findings if f.severity != "info"]
    several = len(named) >= _FAULTS_OF_NOBODY and len(count_by_area(named)) > 1
    if kind.genre == "source":
        return _wrong("source", Observation("source code", kind.why, ""))
    if kind.genre == "configuration" and not findings:
        return _wrong(kind.why, Observation("configuration", kind.why, ""))
    if kind.genre == "documentation" or (kind.genre == "chapters" and several):
        return _wrong("documentation", Observation("documentation", kind.why, ""))
    return None


def complained(said: Observation, text: CleanText, guesses: Sequence[Finding]) -> Unexplained:
    """The state for a complaint of which only the words are known: its line, and the facts to collect next."""
    slow = text.find(_SLOW) is not None or (guesses and area_of(guesses[0].id) in ("data", "network", "program"))
    return _wrong("slow" if slow else "nothing_known", said)


def unavailable(evidence: Evidence) -> Unexplained:
    """The sign that torch sees no GPU, so that a question about it is not a plain question."""
    reading = evidence.reading
    if evidence.machine.torch.is_available is not False or reading is None:
        return Unexplained()
    origin = reading.origins.get("torch.is_available", "")
    return _wrong("hidden_gpu", Observation("torch.is_available", "torch.cuda.is_available() is False", origin))


def _in_text(evidence: Evidence, findings: Sequence[Finding]) -> Unexplained:
    reading = evidence.reading
    assert reading is not None
    sign = _failed_test(evidence) or _failure(reading) or _hidden_gpu(evidence)
    if sign is None and not findings and (slowed := _slowed(reading)) is not None:
        return _wrong("slow", slowed)
    if sign is not None and any(
        sign.origin == one.origin for f in findings if is_of_no_matter(f) for one in f.evidence
    ):
        sign = None
    only_words = set(reading.recognised) <= _WORDS_ONLY and not named_facts(replace(reading, recognised=()))
    if not findings and only_words and sign is None:
        return _wrong("nothing_known")
    if sign is None or (evidence.machine.torch.is_available is True and sign.fact == "error"):
        return Unexplained()
    advised = [f"the same run with {one.setting}, as the error itself advises" for one in advised_in(reading.text)[:1]]
    decide = (*advised, *_deciding(evidence.machine, sign.value))[:2]
    return Unexplained(wrong=True, observations=(sign,), deciding_facts=decide)


def _slowed(reading: Reading) -> Observation | None:
    """The sign that steps take longer and longer, by the times or rates in the log; None if they do not."""
    pace = read_pace(reading.text.lines) if "training_log" in reading.recognised else None
    if pace is None or len(pace.times) < _FEWEST_TIMES or pace.change < _SLOWED:
        return None
    last = pace.times[-1].line
    return observe("pace", f"{pace.change:.1f} times as slow at the end as at first: {last.text.strip()}", last.origin)


def _failed_test(evidence: Evidence) -> Observation | None:
    """The first failed test of another tool; its cause, if known, is a separate finding."""
    tests = evidence.machine.tests
    failed = None if isinstance(tests, Absent) else next((test for test in tests if test.result == "fail"), None)
    if failed is None:
        return None
    return observe("failed test", f"{failed.tool}: {failed.said}", failed.origin)


def _hidden_gpu(evidence: Evidence) -> Observation | None:
    """The sign that torch sees no GPU although the text names one, or its driver; else None."""
    machine = evidence.machine
    named = not isinstance(machine.gpus, Absent) and bool(machine.gpus)
    if machine.torch.is_available is not False or not (named or isinstance(machine.driver.module_version, str)):
        return None
    origin = evidence.reading.origins.get("torch.is_available", "") if evidence.reading is not None else ""
    return Observation("torch.is_available", "False, although the text names a GPU or its driver", origin)


def _failure(reading: Reading) -> Observation | None:
    """The line that shows best that something about the device failed, or None."""
    text = reading.text
    for mention in reversed(list(text.find_all(_LAST_LINE))):
        if _DEVICE_WORDS.search(mention.line.text):
            return observe("error", mention.line.text, mention.line.origin)
    for line in reversed(text.lines):
        if not _INFORMS.search(line.text) and _DEVICE_WORDS.search(line.text) and _FAILURE_WORDS.search(line.text):
            return observe("error", line.text, line.origin)
    ends = [mention for mention in text.find_all(_LAST_LINE) if not mention[1].endswith(("Warning", "Interrupt"))]
    stopped = bool(reading.failures) and all(chain.is_stop for chain in reading.failures)
    where = ends[-1] if ends else None if stopped else text.find(_TRACEBACK)
    # a program that logs steps after an error has recovered from it
    if where is None or (text.find(_TRACEBACK) is None and _STEP.search(text.flat, where.match.span()[1])):
        return None
    return observe("error", where.line.text, where.line.origin)


def _deciding(machine: Machine, error: str) -> tuple[str, ...]:
    """The facts that would decide an error's cause, by its words, if the text lacks them; at most two."""
    return tuple(
        str(row["ask"])
        for row in read_table("deciding.yaml", "errors")
        if Pattern(str(row.get("says", "")), IGNORECASE).search(error)
        and all(isinstance(fact_at(machine, path), Absent) for path in cast(list[str], row.get("lacks", ())))
    )[:2]


def _on_machine(evidence: Evidence, findings: Sequence[Finding]) -> Unexplained:
    machine = evidence.machine
    has_gpu = not isinstance(machine.gpus, Absent) and bool(machine.gpus)
    if findings or not has_gpu or machine.torch.is_available is not False:
        return Unexplained()
    return _wrong("hidden_gpu", Observation("torch.is_available", "False although the driver lists a GPU", "torch"))
