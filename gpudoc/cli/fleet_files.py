"""Saved records of a fleet, given to `gpudoc doctor`: judged again, or the later one compared with the earlier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpudoc.errors import GpudocError
from gpudoc.frozen import dataclass
from gpudoc.reading import is_file
from gpudoc.render.doctor_output import Output
from gpudoc.shell import quote_path

# within so many bytes a record that gpudoc wrote says what it is, also one that was cut off
_HEAD = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetWish:
    """What the user asked of doctor, as far as it goes for a fleet."""

    sources: tuple[str, ...]
    ignore: tuple[str, ...] = ()
    fail_on: str = "broken"
    output: Output


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
    from gpudoc.facts.readers import intake

    if source == "-" or not is_file(source):
        return False
    data = intake.load(Path(source))
    if b'"gpudoc.fleet.' not in data[:200_000]:
        return False
    from gpudoc.fleet.documents import is_record

    return b'"gpudoc.fleet.' in data[:_HEAD] or is_record(intake.read_document(data))


def judge_files(wish: FleetWish) -> int:
    """Judge one record, or compare two in the order old, new; the exit code is doctor's."""
    from gpudoc.doctor.examine import check_ids
    from gpudoc.fleet.documents import load_record
    from gpudoc.fleet.report import FleetReport
    from gpudoc.render.console import say_written
    from gpudoc.render.fleet_saved import show_saved

    check_ids(wish.ignore)
    if len(wish.sources) > 2:
        raise GpudocError(
            f"{len(wish.sources)} fleet records given, but doctor compares at most two",
            hint="gpudoc doctor old.json new.json",
        )
    records = [load_record(Path(source)) for source in wish.sources]
    report = FleetReport.of(records[-1], records[0] if len(records) > 1 else None, wish.ignore)
    show_saved(report, wish.output)
    say_written(*wish.output.files)
    if wish.fail_on == "warning" and report.verdict.word == "warning":
        return 1
    return report.exit_code
