"""A record with what it is compared to, and the exit code that both give."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoc.bench.compare import Comparison, compare
from gpudoc.bench.model import Record
from gpudoc.errors import ExitCode


@dataclass(frozen=True, slots=True)
class BenchReport:
    """What is shown at the end of a run."""

    record: Record
    comparison: Comparison | None = None

    @staticmethod
    def of(record: Record, old: Record | None) -> BenchReport:
        """The report of `record`, compared to `old` when there is one; GpudocError when the two cannot be compared."""
        return BenchReport(record, compare(old, record) if old else None)

    @property
    def exit_code(self) -> ExitCode:
        """130 interrupted; 1 corrupted data, a regression, or nothing measured; 0 also when figures are low."""
        if self.record.interrupted:
            return ExitCode.INTERRUPTED
        broken = any(finding.severity == "broken" for finding in self.record.findings)
        slower = self.comparison is not None and bool(self.comparison.regressions)
        if broken or slower or not self.record.measurements:
            return ExitCode.BAD_ANSWER
        return ExitCode.OK
