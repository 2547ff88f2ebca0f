"""What a text is judged to be: the ids of its findings, most likely first, and tests of whole tables of texts."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence, Finder, Finding, Report, Skip
from gpudoc.facts.model import Machine
from gpudoc.facts.readers import read
from tests.machines.built import found


def report_of(text: str) -> Report:
    report = diagnose(evidence_of(text))
    assert not report.crashed
    return report


def evidence_of(text: str) -> Evidence:
    reading = read(text)
    return Evidence(source="file", machine=reading.machine, reading=reading)


def told(finders: Iterable[Finder], text: str) -> list[Finding]:
    """What these finders alone say of a text."""
    evidence = evidence_of(text)
    return [answer for finder in finders for answer in finder.find(evidence) if isinstance(answer, Finding)]


def ids(text: str) -> list[str]:
    return [finding.id for finding in report_of(text).findings]


def named(text: str) -> list[str]:
    return [finding.id for finding in report_of(text).findings if finding.severity != "info"]


def first(text: str) -> str:
    return (ids(text) or ["none"])[0]


def foremost(text: str) -> list[str]:
    return named(text)[:1]


def first_is(cases: Sequence[tuple[str, str]]) -> Callable[..., None]:
    """A test that each cause is the first that is named for the text beside it."""

    @pytest.mark.parametrize(("cause", "text"), cases)
    def test(cause: str, text: str) -> None:
        assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]

    return test


def never(cases: Sequence[tuple[str, str]], seen: Callable[[str], Any] = named) -> Callable[..., None]:
    """A test that no cause is named for the text beside it; with `seen=ids` not even as information."""

    @pytest.mark.parametrize(("cause", "text"), cases)
    def test(cause: str, text: str) -> None:
        assert cause not in seen(text)

    return test


def silent(texts: Sequence[str], seen: Callable[[str], Any] = named) -> Callable[..., None]:
    """A test that nothing is named for these texts."""

    @pytest.mark.parametrize("text", texts)
    def test(text: str) -> None:
        assert not seen(text)

    return test


def unbroken(text: str) -> list[str]:
    """What is named as broken, and not only as a warning."""
    return [finding.id for finding in report_of(text).findings if finding.severity == "broken"]


def verdict_is(verdicts: Sequence[str], texts: Sequence[str]) -> Callable[..., None]:
    """A test that each text is judged with one of these verdicts."""

    @pytest.mark.parametrize("text", texts)
    def test(text: str) -> None:
        report = report_of(text)
        assert report.verdict in verdicts, report.findings

    return test


def finds(cases: Sequence[tuple[Any, Machine, str]]) -> Callable[..., None]:
    """A test that a finder answers for a machine with "cause severity", several with commas between, "" for none."""

    @pytest.mark.parametrize(("find", "facts", "expected"), cases)
    def test(find: Any, facts: Machine, expected: str) -> None:
        assert ", ".join(f"{cause} {severity}" for cause, severity in found(find, facts)) == expected

    return test


def all_of(finders: Iterable[Finder]) -> Callable[[Evidence], list[Finding | Skip]]:
    """What several finders answer together."""
    return lambda evidence: [answer for finder in finders for answer in finder.find(evidence)]


def sees(cases: Sequence[tuple[Any, Any, str]]) -> Callable[..., None]:
    """A test that a finder answers for a watch with "cause", "skipped" or "", and after a colon what it says of it."""

    @pytest.mark.parametrize(("find", "seen", "expected"), cases)
    def test(find: Any, seen: Any, expected: str) -> None:
        answers = list(find(Evidence(source="process", watch=seen)))
        kind, _, says = expected.partition(": ")
        assert [answer.id if isinstance(answer, Finding) else "skipped" for answer in answers] == [kind][: bool(kind)]
        assert not says or says in (answers[0].title if isinstance(answers[0], Finding) else answers[0].because)

    return test
