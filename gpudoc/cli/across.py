"""`gpudoc bench --across`: every GPU of an allocation, on rank 0's screen and in its files."""

from __future__ import annotations

import sys
from pathlib import Path

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.fleet.allocation import AcrossOptions
from gpudoc.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The task: measure here, write a job, or measure and print hosts."""

    across: bool
    slurm: Path | None = None
    bad_hosts: bool = False
    soak: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcrossOutput:
    """The files for the record, and how to show it."""

    json: bool = False
    html: Path | None = None
    out: Path | None = None
    compare: Path | None = None
    plain: bool = False
    verbose: bool = False


def measure_fleet(options: AcrossOptions, start: Start, output: AcrossOutput) -> int:
    """Write the job, or measure in step with the other processes; only rank 0 prints."""
    from gpudoc.fleet import allocation
    from gpudoc.fleet.documents import load_record, save_record
    from gpudoc.fleet.place import find_place
    from gpudoc.fleet.report import FleetReport, save_report
    from gpudoc.fleet.slurm import write_bench_job
    from gpudoc.progress import SILENT
    from gpudoc.render.console import print_lines, say_written
    from gpudoc.render.fleet import show, show_bad_hosts
    from gpudoc.render.fleet_page import save
    from gpudoc.render.live import Live
    from gpudoc.writing import check_places

    _check(start, output)
    allocation.check(options)
    if start.slurm is not None:
        print_lines(write_bench_job(start.slurm, sys.argv[2:], on_gpu=options.device != "cpu"))
        return ExitCode.OK
    if find_place().rank:
        allocation.run(options, SILENT)
        return ExitCode.OK
    check_places(output.out, output.html)
    old = None if output.compare is None else load_record(output.compare)
    with Live(plain=output.plain or output.json) as progress:
        record = allocation.run(options, progress)
    assert record is not None, "rank 0 has the record"
    if output.out and output.out.suffix.lower() != ".prom":
        # saved before it is judged, so that minutes of measuring are not lost
        save_record(output.out, record)
    report = FleetReport.of(record, old)
    if output.out:
        save_report(output.out, report)
    if output.html:
        save(output.html, report)
    if start.bad_hosts:
        show_bad_hosts(record, report.verdict)
    else:
        show(report, as_json=output.json, plain=output.plain, verbose=output.verbose)
    say_written(output.out, output.html)
    return report.exit_code


def _check(start: Start, output: AcrossOutput) -> None:
    """Raise GpudocError for options that contradict each other, or that need --across."""
    if start.soak:
        raise GpudocError("--soak heats one GPU, but --across measures all", hint="leave out one of them")
    if not start.across:
        option = "--slurm" if start.slurm is not None else "--bad-hosts"
        raise GpudocError(f"{option} needs --across", hint=f"gpudoc bench --across {option}")
    if start.bad_hosts and output.json:
        raise GpudocError(
            "--bad-hosts and --json both print the result on stdout", hint="leave one out; --out FILE keeps the JSON"
        )


def write_doctor_job(place: Path, *, sources: bool, watched: bool) -> int:
    """Write the job that runs the typed doctor command on every node; GpudocError for files and watched jobs."""
    from gpudoc.fleet import slurm
    from gpudoc.render.console import print_lines

    if sources or watched:
        raise GpudocError(
            "--slurm examines the nodes of a job, so it takes no other names",
            hint="gpudoc doctor --slurm job.sh",
        )
    print_lines(slurm.write_doctor_job(place, sys.argv[2:], on_gpu=True))
    return ExitCode.OK
