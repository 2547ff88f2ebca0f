"""What is visibly wrong though no cause explains it, and the two facts that would decide it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpudoc.doctor import relayed
from gpudoc.doctor.causes.kernel_events import unknown_numbers
from gpudoc.doctor.model import Crashed, Evidence, Finding, Observation
from gpudoc.facts.model import Absent
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.genre import FIRST_PERSON, PASTE
from gpudoc.facts.readers.model import Text
from gpudoc.facts.readers.words import Words
from gpudoc.knowledge.cause_rows import area_of, count_by_area

_LAST_LINE = Pattern(
    r"(?m)^(?:E\s+)?((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Warning)\b)(?::\s*(.*))?$"
)
_TRACEBACK = Pattern(r"Traceback\s+\(most\s+recent\s+call\s+last\)")
_DEVICE_WORDS = Pattern(
    r"(?i)cuda|nvml|nvidia-smi\s+has\s+failed|nccl|cudnn|cublas|\bxid\b|gpu\s+(?:not|is\s+lost)|out\s+of\s+memory|"
    r"segmentation\s+fault|core\s+dumped|SIG(?:SEGV|KILL|BUS|ABRT)"
)
_FAILURE_WORDS = Pattern(
    r"(?i)\berror\b|\bfail(?:ed|ure)\b|exception|\bkilled\b|\babort(?:ed)?\b|not\s+available|returns?\s+false"
)
_ENVIRONMENT = "the output of `python -m torch.utils.collect_env` of the machine in question"
_LOG = "the last 100 lines of the log, with the traceback"
_FAULTS_OF_NOBODY, _FEW_LINES = 3, 25
# a program that logs with levels says itself which of its lines tell of no failure
_INFORMS = Pattern(r"\[(?:INFO|DEBUG|NOTICE)\]")


_ABOUT_NUMBERS = (
    "`nvidia-smi -q`: whether the GPU answers, and whether it asks for a recovery",
    "NVIDIA's catalogue for the number: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unexplained:
    """Whether something is wrong that no finding explains, the signs of it, and what to look at next."""

    wrong: bool = False
    observations: tuple[Observation, ...] = ()
    deciding_facts: tuple[str, ...] = ()


def look(evidence: Evidence, findings: Sequence[Finding], crashed: Sequence[Crashed]) -> Unexplained:
    """Signs of trouble left over when no finding is 'broken'; a text with nothing recognised is trouble too."""
    if any(f.severity == "broken" for f in findings):
        return Unexplained()
    numbers = unknown_numbers(evidence)
    if numbers:
        return Unexplained(wrong=True, observations=numbers, deciding_facts=_ABOUT_NUMBERS)
    if crashed:
        seen = tuple(Observation(f"check {c.id}", c.error, "gpudoc") for c in crashed)
        return Unexplained(wrong=True, observations=seen, deciding_facts=("the output of gpudoc doctor --verbose",))
    if evidence.source == "file" and evidence.reading is not None:
        return _in_text(evidence, findings)
    if evidence.source == "machine":
        return _on_machine(evidence, findings)
    return Unexplained()


def no_patient(evidence: Evidence, findings: Sequence[Finding]) -> Unexplained | None:
    """Why the text is about no machine at all: documentation, or a program; None for anybody's paste.

    Impersonal chapters are taken for documentation when they name faults of several areas: no machine has them all.
    """
    kind = evidence.reading.kind if evidence.reading is not None else PASTE
    named = [f.id for f in findings if f.severity != "info"]
    several = len(named) >= _FAULTS_OF_NOBODY and len(count_by_area(named)) > 1
    if kind.genre == "source":
        return Unexplained(
            wrong=True,
            observations=(Observation("source code", kind.why, ""),),
            deciding_facts=("`gpudoc doctor -- python FILE`: watches the program while it runs", _LOG),
        )
    if kind.genre == "documentation" or (kind.genre == "chapters" and several):
        return Unexplained(
            wrong=True,
            observations=(Observation("documentation", kind.why, ""),),
            deciding_facts=("the log or the output itself, without the text around it", _ENVIRONMENT),
        )
    return None


def is_told(text: Text) -> bool:
    """Whether somebody tells it in his own words; a program's log may hold the same words and complain of nothing."""
    return len(text.lines) <= _FEW_LINES or text.find(FIRST_PERSON) is not None


# what somebody says for whom nothing fails and something is wrong
_COMPLAINT = Words(
    r"\bslow\w*",
    r"\b(?:hang|hung|stuck|freez|frozen|leak|crash|stall|lag)\w*",
    r"(?:too|very|so) (?:long|much|low|high)\b",
    r"\b(?:wrong|strange|weird|abnormal|unexpected)\b",
    r"(?:memory|ram|usage)[^.\n]{0,40}(?:grow\w*|increas\w*)",
    r"\b(?:doesn't|does not|can ?not|can't|don't|isn't|not) (?:work|use|see|find|detect|recogni[sz]e|utili[sz]e)\w*",
    r"\bwhy\b",
    r"\bhow long (?:should|does|do|will)\b|\b(?:reasonable|normal|expected)\b[^.\n]{0,24}\b(?:time|speed)|\b(?:time|"
    r"speed)\b[^.\n]{0,24}"
    r"\b(?:reasonable|normal|expected)\b",
    r"\b(?:problem|trouble|bottleneck|imbalance\w*|uneven)\b",
    # figures that nobody names who is content with them
    r"\b[1-6]?\d ?% (?:gpu[- ]?)?utili[sz]ation\b|\butili[sz]ation (?:is |at |of |only |around )*[1-6]?\d ?%",
    r"\b\d+ ?(?:min(?:ute)?|hour|h)s? (?:an?|per|each|for (?:an?|one|each)) epoch\b",
)


def complains(text: Text) -> bool:
    """Whether the text says that something is wrong, though nothing in it fails."""
    return text.find(_COMPLAINT) is not None


def complained(guesses: Sequence[Finding]) -> Unexplained:
    """A complaint of which only the words are known: what its likeliest causes rest on, and what to collect next."""
    first = guesses[0]
    slow = area_of(first.id) in ("data", "network", "program")
    running = "`gpudoc doctor --pid PID` while it runs: which line waits, and for what"
    return Unexplained(
        wrong=True,
        observations=tuple(Observation("complaint", o.value, o.origin) for o in first.evidence[:1]),
        deciding_facts=(running, "`nvidia-smi` in that moment: GPU, memory, load") if slow else (_ENVIRONMENT, _LOG),
    )


def _in_text(evidence: Evidence, findings: Sequence[Finding]) -> Unexplained:
    reading = evidence.reading
    assert reading is not None
    if not reading.recognised and not findings:
        return Unexplained(
            wrong=True,
            deciding_facts=(_ENVIRONMENT, _LOG),
        )
    sign = _failed_test(evidence) or _failure(reading.text) or _hidden_gpu(evidence)
    if sign is None or (evidence.machine.torch.is_available is True and sign.fact == "error"):
        return Unexplained()
    advised = [
        f"the same run with {one.setting}, as the error itself advises" for one in relayed.read(reading.text)[:1]
    ]
    decide = (*advised, *_deciding(evidence, sign.value))[:2]
    return Unexplained(wrong=True, observations=(sign,), deciding_facts=decide)


def _failed_test(evidence: Evidence) -> Observation | None:
    """The first test of another tool that failed; what it points to, where that is known, is a finding besides."""
    tests = evidence.machine.tests
    failed = None if isinstance(tests, Absent) else next((test for test in tests if test.result == "fail"), None)
    if failed is None:
        return None
    return Observation("failed test", f"{failed.tool}: {failed.said}"[:200], failed.origin)


def _hidden_gpu(evidence: Evidence) -> Observation | None:
    """torch sees no GPU in a text that names one, or its driver."""
    machine = evidence.machine
    named = not isinstance(machine.gpus, Absent) and bool(machine.gpus)
    if machine.torch.is_available is not False or not (named or isinstance(machine.driver.module_version, str)):
        return None
    origin = evidence.reading.origins.get("torch.is_available", "") if evidence.reading is not None else ""
    return Observation("torch.is_available", "False, although the text names a GPU or its driver", origin)


def _failure(text: Text) -> Observation | None:
    """The line that says best that something about the device failed, or None."""
    for mention in reversed(list(text.find_all(_LAST_LINE))):
        if _DEVICE_WORDS.search(mention.line.text):
            return Observation("error", mention.line.text.strip()[:200], mention.line.origin)
    for line in reversed(text.lines):
        if not _INFORMS.search(line.text) and _DEVICE_WORDS.search(line.text) and _FAILURE_WORDS.search(line.text):
            return Observation("error", line.text.strip()[:200], line.origin)
    last = text.find(_TRACEBACK)
    if last is None:
        return None
    ends = list(text.find_all(_LAST_LINE))
    where = ends[-1].line if ends else last.line
    return Observation("error", where.text.strip()[:200], where.origin)


def _deciding(evidence: Evidence, error: str) -> tuple[str, ...]:
    machine = evidence.machine
    wanted = []
    if re.search(r"(?i)out\s+of\s+memory|alloc", error):
        wanted.append("`nvidia-smi` while the program runs: who holds the memory")
    if re.search(r"(?i)nccl|watchdog|timeout", error):
        wanted.append("the same run with NCCL_DEBUG=INFO: which rank and which call stop")
    if re.search(r"(?i)launch|assert|illegal", error):
        wanted.append("the same run with CUDA_LAUNCH_BLOCKING=1: which operation fails")
    if isinstance(machine.driver.module_version, Absent) and isinstance(machine.driver.library_version, Absent):
        wanted.append("`nvidia-smi`: driver version and GPUs")
    if isinstance(machine.torch.version, Absent):
        wanted.append("`python -m torch.utils.collect_env`: torch build and GPU")
    wanted.append("`dmesg | grep -i -e xid -e nvrm`: whether driver or hardware reported a fault")
    return tuple(wanted[:2])


def _on_machine(evidence: Evidence, findings: Sequence[Finding]) -> Unexplained:
    machine = evidence.machine
    has_gpu = not isinstance(machine.gpus, Absent) and bool(machine.gpus)
    if findings or not has_gpu or machine.torch.is_available is not False:
        return Unexplained()
    return Unexplained(
        wrong=True,
        observations=(Observation("torch.is_available", "False although the driver lists a GPU", "torch"),),
        deciding_facts=(
            "`python -c 'import torch; torch.cuda.init()'`: the full error",
            "`dmesg | grep -i -e xid -e nvrm`: whether driver or hardware reported a fault",
        ),
    )
