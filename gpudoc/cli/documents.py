"""The inputs of `gpudoc doctor` other than texts and its own reports: profiler traces, and records of fleets.

If there are two, the later one is compared with the earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpudoc.errors import GpudocError
from gpudoc.facts.readers.genre import is_trace
from gpudoc.facts.readers.large_file import read_head
from gpudoc.render.doctor_output import Output
from gpudoc.shell import quote_path

# the sign of a record, and how many bytes of a file are searched for it
_SIGN, _LOOKED_AT = b'"gpudoc.fleet.', 200_000
# a record that gpudoc wrote has the sign within this many bytes, even if it was cut off
_HEAD = 400


def judge_documents(sources: Sequence[str], ignore: tuple[str, ...], fail_on: str, output: Output) -> int | None:
    """Judge traces or records of fleets and return the exit code; None if the sources are neither."""
    if are_traces(sources):
        output.refuse_sarif("a trace or a fleet's record")
        return judge_traces(sources, ignore, fail_on, output)
    if are_fleets(sources):
        output.refuse_sarif("a trace or a fleet's record")
        return judge_fleets(sources, ignore, fail_on, output)
    return None


def are_traces(sources: Sequence[str]) -> bool:
    """Whether all of these are profiler traces; GpudocError for a mixture with other sources."""
    found = [source for source in sources if source != "-" and is_trace(Path(source))]
    if found and len(found) < len(sources):
        raise GpudocError(f"{found[0]} is a profiler trace, but other sources are not", hint="give only traces")
    return bool(found)


def are_fleets(sources: Sequence[str]) -> bool:
    """Whether all of these are records of a fleet, whole or cut off; GpudocError for a mixture with other sources."""
    found = [source for source in sources if _is_fleet(source)]
    if found and len(found) < len(sources):
        raise GpudocError(
            f"{found[0]} is a fleet record, but other sources are not",
            hint=f"gpudoc doctor {quote_path(found[0])}",
        )
    return bool(found)


def _is_fleet(source: str) -> bool:
    head = b"" if source == "-" else read_head(Path(source), _LOOKED_AT)
    if _SIGN not in head:
        return False
    from gpudoc.facts.readers import intake
    from gpudoc.fleet.documents import is_record

    return _SIGN in head[:_HEAD] or is_record(intake.read_document(intake.load(Path(source))))


def judge_traces(sources: Sequence[str], ignore: Sequence[str], fail_on: str, output: Output) -> int:
    """Judge one trace, or compare two in the order before, after; the exit code is doctor's."""
    from gpudoc.doctor.causes.step_trace import FINDERS
    from gpudoc.doctor.diagnose import diagnose
    from gpudoc.doctor.examine import check_ids
    from gpudoc.doctor.model import Evidence
    from gpudoc.facts.readers.kineto import read_trace
    from gpudoc.facts.readers.timeline import summarise
    from gpudoc.render.console import say_written
    from gpudoc.render.live import Live
    from gpudoc.render.trace import TraceReport, show

    check_ids(ignore)
    if len(sources) > 2:
        raise GpudocError(
            f"{len(sources)} traces given, but doctor compares at most two", hint="gpudoc doctor a.json b.json"
        )
    timelines = []
    with Live(plain=output.plain or output.json) as progress:
        for source in sources:
            progress.advance(0.0, 0.0, f"reads {Path(source).name}")
            timelines.append(summarise(read_trace(Path(source))))
    last = timelines[-1]
    report = diagnose(Evidence(source="file", timeline=last), finders=FINDERS, ignore=ignore)
    show(TraceReport(report=report, timeline=last, before=timelines[0] if len(timelines) > 1 else None), output)
    say_written(*output.files)
    return report.exit_code("warning" if fail_on == "warning" else "broken")


def judge_fleets(sources: Sequence[str], ignore: tuple[str, ...], fail_on: str, output: Output) -> int:
    """Judge one record, or compare two in the order old, new; the exit code is doctor's."""
    from gpudoc.doctor.examine import check_ids
    from gpudoc.fleet.documents import load_record
    from gpudoc.fleet.report import FleetReport
    from gpudoc.render.console import say_written
    from gpudoc.render.fleet_record import show_saved

    check_ids(ignore)
    if len(sources) > 2:
        raise GpudocError(
            f"{len(sources)} fleet records given, but doctor compares at most two",
            hint="gpudoc doctor old.json new.json",
        )
    records = [load_record(Path(source)) for source in sources]
    report = FleetReport.of(records[-1], records[0] if len(records) > 1 else None, ignore)
    show_saved(report, output)
    say_written(*output.files)
    if fail_on == "warning" and report.verdict.word == "warning":
        return 1
    return report.exit_code
