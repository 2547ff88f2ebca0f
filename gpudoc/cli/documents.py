"""What `gpudoc doctor` is given besides texts and its own reports: profiler traces, and records of fleets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpudoc.errors import GpudocError
from gpudoc.render.doctor_output import Output


def judge_documents(sources: Sequence[str], ignore: tuple[str, ...], fail_on: str, output: Output) -> int | None:
    """Judge traces or records of fleets; the exit code, None when the sources are neither."""
    from gpudoc.cli.fleet_files import FleetWish, are_fleets
    from gpudoc.cli.fleet_files import judge_files as judge_fleets

    if are_traces(sources) or are_fleets(sources):
        output.refuse_sarif("a trace or a fleet's record")
    if are_traces(sources):
        return judge_traces(sources, ignore, fail_on, output)
    if are_fleets(sources):
        return judge_fleets(FleetWish(sources=tuple(sources), ignore=ignore, fail_on=fail_on, output=output))
    return None


def are_traces(sources: Sequence[str]) -> bool:
    """Whether all of these are profiler traces; GpudocError for a mixture with other sources."""
    from gpudoc.facts.readers.kineto import is_trace

    found = [source for source in sources if source != "-" and is_trace(Path(source))]
    if found and len(found) < len(sources):
        raise GpudocError(f"{found[0]} is a profiler trace, but other sources are not", hint="give only traces")
    return bool(found)


def judge_traces(sources: Sequence[str], ignore: Sequence[str], fail_on: str, output: Output) -> int:
    """Judge one trace, or compare two in the order before, after; the exit code is doctor's."""
    from gpudoc.doctor.causes.traced import FINDERS
    from gpudoc.doctor.diagnose import diagnose
    from gpudoc.doctor.document import exit_code
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
    return exit_code(report, "warning" if fail_on == "warning" else "broken")
