"""The rows for reading and judging the logs of a job of many ranks."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from gpudoc.facts.readers.job_failure import RankKind, RankOrder, RankRows, Repeat
from gpudoc.facts.readers.job_files import JobFile
from gpudoc.facts.readers.job_log import JobLog, RankSign
from gpudoc.facts.readers.job_reader import JobReader
from gpudoc.knowledge.tables import read_rows


@functools.cache
def rank_rows() -> RankRows:
    """How an attempt may end, and what attempts may have in common."""
    return RankRows(
        kinds={row.id: row for row in read_rows("rank_kinds.yaml", "kinds", RankKind)},
        orders={row.id: row for row in read_rows("rank_kinds.yaml", "orders", RankOrder)},
        repeats={row.id: row for row in read_rows("rank_kinds.yaml", "repeats", Repeat)},
    )


def read_job(files: Sequence[JobFile]) -> JobLog | None:
    """The job of these logs; None if they name neither several ranks nor several attempts."""
    return JobReader(read_rows("rank_signs.yaml", "signs", RankSign)).read(files)
