"""A record with its verdict and comparison, as every command shows, writes and returns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gpudoc.doctor.document import dump_finding
from gpudoc.doctor.model import Report, Skipped
from gpudoc.errors import ExitCode
from gpudoc.facts.model import Machine
from gpudoc.fleet.compare import FleetComparison, compare
from gpudoc.fleet.documents import record_to_json, save_document
from gpudoc.fleet.prometheus import to_prometheus
from gpudoc.fleet.record import FleetRecord, Spot
from gpudoc.fleet.verdict import FleetVerdict, judge
from gpudoc.fleet.wording import spots_name
from gpudoc.writing import write_whole


@dataclass(frozen=True, slots=True)
class FleetReport:
    """The report at the end of a run, or about a saved record."""

    record: FleetRecord
    verdict: FleetVerdict
    comparison: FleetComparison | None = None

    @staticmethod
    def of(record: FleetRecord, old: FleetRecord | None = None, ignore: Sequence[str] = ()) -> FleetReport:
        """The report of `record`, compared to `old` if given; GpudocError if they cannot be compared.

        Findings whose id is in `ignore` are left out, also from the verdict.
        """
        verdict = judge(record, ignore)
        if old is None:
            return FleetReport(record, verdict)
        return FleetReport(record, verdict, compare(old, record, (judge(old, ignore), verdict)))

    @property
    def exit_code(self) -> ExitCode:
        """130 if interrupted; 1 if something must be drained, is broken, got worse, or could not be judged."""
        if self.record.interrupted:
            return ExitCode.INTERRUPTED
        worse = self.comparison is not None and self.comparison.is_worse
        return ExitCode.BAD_ANSWER if worse else self.verdict.exit_code

    def to_json(self) -> dict[str, object]:
        """The document gpudoc.fleet.v1 with its `verdict`, and `comparison` if there is one."""
        document = record_to_json(self.record) | {"verdict": verdict_to_json(self.verdict)}
        if self.comparison is not None:
            document["comparison"] = comparison_to_json(self.comparison)
        return document

    def to_doctor(self) -> Report:
        """The same as a report of doctor: findings, passed parts, and unjudged parts as not checked."""
        verdict = self.verdict
        # a part of the fleet passed if all of it was judged and none of it is odd
        open_ = {one.what for one in verdict.unjudged} | {name for one in verdict.named for name in one.families}
        return Report(
            source="fleet",
            verdict=verdict.word,
            findings=verdict.findings,
            passed=tuple(
                family.name
                for family in verdict.families
                if not open_ & {family.name, *(scored.measure.key for scored in family.scored)}
            ),
            skipped=tuple(Skipped(one.what, f"{spots_name(one.at)}: {one.because}") for one in verdict.unjudged),
            crashed=(),
            machine=Machine(),
            recognised=(f"{len(self.record.nodes)} nodes",),
        )


def verdict_to_json(verdict: FleetVerdict) -> dict[str, object]:
    """The judgement as plain values; nodes by their position in the record."""
    return {
        "word": verdict.word,
        "threshold_sigma": round(verdict.limit, 3),
        "drain": list(verdict.drained),
        "findings": [
            dump_finding(one.finding)
            | {
                "level": one.level,
                "at": [_spot(spot) for spot in one.at],
                "confirmed": one.confirmed,
                "drain": one.drain,
                "sigma": _short(one.sigma),
                "loss": _short(one.loss),
            }
            for one in verdict.named
        ],
        "cleared": [
            {"level": one.level, "at": [_spot(spot) for spot in one.at], "family": one.family.name}
            for one in verdict.cleared
        ],
        "unjudged": [
            {"at": [_spot(spot) for spot in one.at], "what": one.what, "because": one.because}
            for one in verdict.unjudged
        ],
        "job": None if verdict.loss is None else _plain(asdict(verdict.loss)),
        "software": [
            {"what": one.what, "usual": one.usual, "values": {v: list(n) for v, n in one.values.items()}}
            for one in verdict.software
        ],
        "expected": [
            {
                "model": one.model,
                "measure": one.measure.key,
                "median": _short(one.middle),
                "ceiling": _short(one.ceiling),
                "ceiling_from": one.formula,
                "share": _short(one.share),
                "normal": one.normal,
            }
            for one in verdict.expected
        ],
    }


def comparison_to_json(comparison: FleetComparison) -> dict[str, object]:
    """The changes as plain values; places are the newer record's."""
    return _plain(asdict(comparison)) | {"is_worse": comparison.is_worse}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _spot(spot: Spot) -> list[int]:
    return [spot.node] if spot.gpu < 0 else [spot.node, spot.gpu]


def _plain(value: Mapping[str, object]) -> dict[str, object]:
    """The values with places as short lists and rounded figures, as everywhere in the document."""
    plain = _walk(value)
    assert isinstance(plain, dict)
    return plain


def _walk(value: object) -> object:
    if isinstance(value, Spot):
        return _spot(value)
    if isinstance(value, Mapping):
        return {str(key): _walk(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item) for item in value]
    return _short(value) if isinstance(value, float) else value


def save_report(path: Path, report: FleetReport) -> Path:
    """Write the judged record, or the figures for Prometheus if the name ends in .prom; GpudocError on failure."""
    if path.suffix.lower() == ".prom":
        return write_whole(path, to_prometheus(report.record, report.verdict), hint="--out fleet.prom")
    return save_document(path, report.to_json())
