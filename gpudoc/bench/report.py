"""A record with its comparison, if any, and the exit code of both."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoc.bench.compare import Comparison, compare
from gpudoc.bench.model import Record
from gpudoc.errors import ExitCode


@dataclass(frozen=True, slots=True)
class BenchReport:
    """The report at the end of a run."""

    record: Record
    comparison: Comparison | None = None

    @staticmethod
    def of(record: Record, old: Record | None) -> BenchReport:
        """The report of `record`, compared to `old` if there is one; GpudocError if the two cannot be compared."""
        return BenchReport(record, compare(old, record) if old else None)

    @property
    def exit_code(self) -> ExitCode:
        """130 interrupted; 1 corrupted data, a regression, or nothing measured; otherwise 0, even with low figures."""
        if self.record.interrupted:
            return ExitCode.INTERRUPTED
        broken = any(finding.severity == "broken" for finding in self.record.findings)
        slower = self.comparison is not None and bool(self.comparison.regressions)
        if broken or slower or not self.record.measurements:
            return ExitCode.BAD_ANSWER
        return ExitCode.OK
