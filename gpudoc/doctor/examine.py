"""Doctor's request and the way to its report: for this machine, a text, a saved report, or several machines."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpudoc.control_characters import escape_line
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence, Expectation, Observation, Report, Skipped, Source
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Machine
from gpudoc.facts.readers import intake
from gpudoc.facts.readers.clean import Data
from gpudoc.facts.readers.job_end import AttemptEnd, lines_of
from gpudoc.facts.readers.job_failure import judge_job
from gpudoc.facts.readers.job_files import JobFile, find_logs, identify, is_log
from gpudoc.facts.readers.model import Language, Reading
from gpudoc.patterns import Pattern, deadline
from gpudoc.progress import SILENT, Progress
from gpudoc.shell import quote, quote_path
from gpudoc.units import format_count

# more log files than this are the ranks of a job, and are not read as one text first
_MOST_TOGETHER = 16
_FEWEST_WORDS = 3
# a path, or the name of a report or log
_FILE_NAME = Pattern(r"^[~./]|\.(?:log|txt|out|err|json|ya?ml|md|gz|html?|py|csv)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The user's request: files and texts (this machine if there are neither), and how to look.

    `language` is the language of the answer, None for the text's own.
    """

    sources: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    quick: bool = False
    python: Path | None = None
    expect_gpus: int | None = None
    ignore: tuple[str, ...] = ()
    language: Language | None = None


def examine(request: Request, progress: Progress = SILENT) -> Report:
    """The report for a request; GpudocError for a source that cannot be read or an id that does not exist."""
    began = time.perf_counter()
    check_ids(request.ignore)
    if not request.sources and not request.texts:
        report = examine_machine(_collect(request, progress), request)
    else:
        report = _examine_sources(request, progress)
    language = request.language or report.language
    return replace(report, language=language, seconds={**report.seconds, "total": time.perf_counter() - began})


def examine_machine(machine: Machine, request: Request = Request()) -> Report:
    """The report of facts collected live, including the messages of the machine's parts."""
    return _judge("machine", machine, intake.read_machine(machine), request)


def examine_text(inputs: Sequence[tuple[str, Data]], request: Request = Request()) -> Report:
    """The report of texts (name and bytes of each) that are the evidence of one machine."""
    with deadline():
        reading = intake.read_all(inputs)
        report = _judge("file", reading.machine, reading, request)
    if reading.text.flat.isascii():
        return report
    from gpudoc.facts.readers.language import language_of

    return replace(report, language=language_of(reading.text))


def examine_job(files: Sequence[JobFile], whole: Report | None, request: Request = Request()) -> Report | None:
    """The report of a job of several ranks: the findings for the rank that failed first, and the state of the others.

    None if the files are not of such a job. `whole` is the report of all lines as one text, which counts if the
    lines of that rank prove nothing.
    """
    from gpudoc.doctor import ranks

    job = ranks.read_job(files)
    failure = judge_job(job, ranks.rank_rows()) if job is not None else None
    if job is None or failure is None:
        return None
    with deadline():
        reading = intake.read_lines(lines_of(job, failure.judged))
        report = _judge("file", reading.machine, reading, request, failure.judged)
    if report.verdict != "broken" and whole is not None:
        report = whole
    return replace(report, job=failure, language=whole.language) if whole is not None else replace(report, job=failure)


def _judge(
    source: Source, machine: Machine, reading: Reading | None, request: Request, end: AttemptEnd | None = None
) -> Report:
    expected = Expectation(num_gpus=request.expect_gpus)
    evidence = Evidence(source=source, machine=machine, reading=reading, end=end, expectation=expected)
    with deadline() as limit:
        report = diagnose(evidence, ignore=request.ignore)
    return _unfinished(report, tuple(limit.given_up)) if limit.given_up else report


def _unfinished(report: Report, given_up: Sequence[str]) -> Report:
    """The report of a text in which searches were given up: it says that their signatures were not checked."""
    count = format_count(len(given_up), "expression")
    because = f"{count} took too long on this text, or its time could not be limited: {given_up[0][:80]}"
    report = replace(report, skipped=(*report.skipped, Skipped("signatures", because)))
    if report.verdict != "healthy":
        return report
    seen = Observation("search", because, "gpudoc")
    return replace(
        report, verdict="unknown", unexplained=(seen,), deciding_facts=("pass only the lines around the error",)
    )


def _collect(request: Request, progress: Progress) -> Machine:
    from gpudoc.facts.collection import collect

    return collect(quick=request.quick, python=request.python, progress=progress, meanwhile=_load_causes)


def _load_causes() -> None:
    """Import the finders, a quarter of a second, while the machine is being read."""
    from gpudoc.doctor import registry

    assert registry.FINDERS


def _examine_sources(request: Request, progress: Progress) -> Report:
    if _are_words(request.sources):
        request = replace(request, sources=(" ".join(request.sources),))
    first = next(iter(request.sources), "-")
    if first != "-" and not _exists(first) and any(map(_is_script, request.sources[1:])):
        hint = f"gpudoc doctor -- {' '.join(map(quote, request.sources))}"
        raise GpudocError(f"no such file: {escape_line(first)}; to watch a command, put it after --", hint=hint)
    words = [source for source in request.sources if _is_words(source)]
    texts: list[tuple[str, Data]] = [
        ("text", text.encode("utf-8", "surrogateescape")) for text in (*request.texts, *words)
    ]
    places = [Path(name) for name, _ in texts]
    saved: list[tuple[str, Report]] = []
    paths = [Path(source) for source in request.sources if source != "-" and source not in words]
    if any(map(os.path.isdir, paths)) or (len(paths) > _MOST_TOGETHER and all(map(is_log, paths))):
        return _examine_logs(paths, request, progress)
    for source in request.sources:
        if source in words:
            continue
        name = "stdin" if source == "-" else escape_line(Path(source).name)
        # the caller already names the source if there is only one
        if len(request.sources) > 1:
            progress.advance(0.0, 0.0, f"reads {name}")
        data: Data = intake.load_stdin() if source == "-" else intake.load(Path(source))
        own = intake.read_document(data)
        if own is None:
            texts.append((name, data))
            places.append(Path(name if source == "-" else source))
        else:
            from gpudoc.doctor import document

            saved.append((name, document.load(own, name=name)))
    if texts and saved:
        raise GpudocError(
            f"{texts[0][0]} is text, but {saved[0][0]} is a report of gpudoc",
            hint="compare machines with reports, or pass texts of one machine, but not both in one call",
        )
    if texts:
        return _examine_texts(texts, places, request)
    if len(saved) == 1:
        return _again(saved[0][1], request)
    from gpudoc.doctor import fleet

    return fleet.compare(saved)


def _examine_logs(paths: Sequence[Path], request: Request, progress: Progress) -> Report:
    """The report of many logs, or of logs in folders, as one job; GpudocError if none says which rank failed."""
    progress.advance(0.0, 0.0, "reads the logs of all ranks")
    logs = [log for path in paths for log in (find_logs(path) if path.is_dir() else (path,))]
    report = examine_job(identify(logs), None, request)
    if report is None and len(logs) == 1:
        return examine_text([(logs[0].name, intake.load(logs[0]))], request)
    if report is None:
        raise GpudocError(
            f"{format_count(len(logs), 'log')} in {escape_line(paths[0])}, and none of them says which rank failed",
            hint=f"pass one of them, or several as evidence of one machine: gpudoc doctor {quote_path(logs[0])}",
        )
    return report


def _examine_texts(texts: Sequence[tuple[str, Data]], places: Sequence[Path], request: Request) -> Report:
    """The report of texts: as the ranks of one job if they say so, else as the evidence of one machine."""
    whole = examine_text(texts, request)
    if len(texts) == 1 and not intake.names_ranks(texts[0][1]):
        return whole
    held = (data if isinstance(data, bytes) else None for _, data in texts)
    files = [replace(file, data=data) for file, data in zip(identify(places), held, strict=True)]
    return examine_job(files, whole, request) or whole


def _is_words(source: str) -> bool:
    """Whether the source is an error message in quotes: several words, neither a file nor named like one."""
    if len(source.split()) < 2 or _FILE_NAME.search(source):
        return False
    return not _exists(source)


def _exists(source: str) -> bool:
    """Whether there is such a file or folder; False for a text longer than any path may be."""
    return os.path.exists(source)  # noqa: PTH110 - `Path.exists` fails there


def _are_words(sources: Sequence[str]) -> bool:
    """Whether the sources are one sentence without quotes: at least three words, none a file or named like one."""
    return len(sources) >= _FEWEST_WORDS and not any(
        source == "-" or _FILE_NAME.search(source) or _exists(source) for source in sources
    )


def _is_script(source: str) -> bool:
    return source.endswith(".py") and _exists(source)


def _again(report: Report, request: Request) -> Report:
    """A saved report, judged again from its facts by this version."""
    if report.source != "machine":
        return replace(report, findings=tuple(f for f in report.findings if f.id not in request.ignore))
    return examine_machine(report.machine, request)


def check_ids(ids: Sequence[str]) -> None:
    """Raise GpudocError with the nearest name if the catalogue does not know one of the ids."""
    if not ids:
        return
    from gpudoc.doctor.registry import CATALOGUE, no_such_cause

    for name in ids:
        if name not in CATALOGUE:
            raise no_such_cause(name)
