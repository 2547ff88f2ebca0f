"""Joins the logs of one job, one or many, into one record: the streams of files become ranks of attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpudoc.errors import GpudocError
from gpudoc.facts.readers.clean import clean_line
from gpudoc.facts.readers.job_files import MOST_RANKS, JobFile
from gpudoc.facts.readers.job_log import Attempt, EndLine, JobLog, RankLog, RankSign
from gpudoc.facts.readers.job_scan import AMBIGUOUS, NOBODY_KEY, FileScan, Key, SignWords, Stream, key_of, whole_lines
from gpudoc.facts.readers.model import Line
from gpudoc.facts.readers.rank_lines import NOBODY, read_speaker

# how many bytes of all files are read line by line, and the least and most for one file
_ALL_WINDOWS, _LEAST_WINDOW, _MOST_WINDOW = 24 << 20, 8 << 10, 4 << 20
# how many lines that may show an end are read: a log of many ranks has tens of thousands, that of one rank some dozens
_ALL_HITS, _LEAST_HITS, _MOST_HITS = 100_000, 400, 40_000
# how many bytes are read around a failure, and how many of its rank's lines are kept on either side
_AROUND_BYTES, _MOST_AROUND_BYTES, _LINES_BEFORE, _LINES_AFTER = 32 << 10, 2 << 20, 160, 60
_FEWEST = 2

# the streams of one rank in one attempt, each with its file
_Streams = list[tuple[FileScan, Stream]]


class JobReader:
    """Reads file after file, then joins what they say into a job."""

    def __init__(self, rows: Sequence[RankSign]) -> None:
        self._words = SignWords(rows)
        self._scans: list[FileScan] = []
        self._firsts: dict[str, int] | None = None

    def read(self, files: Sequence[JobFile]) -> JobLog | None:
        """The job of these files; None if it shows neither two ranks nor two attempts."""
        window = min(max(_ALL_WINDOWS // (8 * len(files)), _LEAST_WINDOW), _MOST_WINDOW)
        most_hits = min(max(_ALL_HITS // len(files), _LEAST_HITS), _MOST_HITS)
        for file in files:
            scan = FileScan(file, self._words, window, most_hits)
            try:
                scan.read()
            except (OSError, GpudocError):
                # an empty file is a rank that never wrote; an unreadable or non-text file is not a rank
                if not file.is_empty:
                    continue
            self._scans.append(scan)
        return self._job()

    def _job(self) -> JobLog | None:
        gathered: dict[int, dict[int, _Streams]] = {}
        told: dict[int, list[EndLine]] = {}
        for scan in self._scans:
            for (number, key), stream in scan.streams.items():
                attempt = scan.file.attempt + number
                rank = self._rank_of(key, scan)
                told.setdefault(attempt, [])
                if rank is None:
                    told[attempt] += [sign for signs in stream.signs.values() for sign in signs]
                else:
                    gathered.setdefault(attempt, {}).setdefault(rank, []).append((scan, stream))
            if not scan.streams and (silent := self._rank_of(NOBODY_KEY, scan)) is not None:
                gathered.setdefault(scan.file.attempt, {}).setdefault(silent, []).append((scan, Stream()))
        if not gathered:
            return None
        common = {id(scan): _common_place(scan) for scan in self._scans}
        attempts = tuple(
            _attempt(number, gathered[number], told.get(number, []), common) for number in sorted(gathered)
        )
        ranks = set().union(*gathered.values())
        if len(ranks) < _FEWEST and (len(attempts) < _FEWEST or not any(a.told for a in attempts)):
            return None
        files = {id(scan) for scan in self._scans}
        says = any(scan.says_ranks for scan in self._scans) or any(
            one.file.local is not None or (one.file.rank is not None and not one.file.rank_by_number)
            for one in self._scans
        )
        shared = any(len({key for _, key in scan.streams if key != NOBODY_KEY}) > 1 for scan in self._scans)
        return JobLog(attempts=attempts, num_files=len(files), says_ranks=says, is_shared=shared)

    def _rank_of(self, key: Key, scan: FileScan) -> int | None:
        """The rank that wrote the stream; None if it is unknown, or larger than in any job."""
        rank = self._said_rank_of(key, scan)
        return rank if rank is not None and rank < MOST_RANKS else None

    def _said_rank_of(self, key: Key, scan: FileScan) -> int | None:
        kind, node, number = key
        if kind == "rank":
            return number
        if kind == "local":
            return self._global(scan, node, number)
        own = {number for _, (kind, _, number) in scan.streams if kind == "rank"}
        locals_ = {number for _, (kind, _, number) in scan.streams if kind == "local"}
        if scan.file.local is not None:
            return next(iter(own)) if len(own) == 1 else self._global(scan, 0, scan.file.local)
        if scan.file.rank is not None and not locals_:
            wrote = {n for (_, (kind, _, n)), stream in scan.streams.items() if kind == "rank" and stream.wrote}
            return next(iter(wrote)) if len(wrote) == 1 and scan.file.rank_by_number else scan.file.rank
        return None

    def _global(self, scan: FileScan, node: int, local: int) -> int | None:
        """The rank of a local rank on a node: as a line says, else counted from a neighbour or the nodes before it.

        None if the local rank occurs on several nodes of one file.
        """
        if AMBIGUOUS in scan.pairs.values():
            return None
        if (node, local) in scan.pairs:
            return scan.pairs[node, local]
        known = next((rank - place for (at, place), rank in scan.pairs.items() if at == node), None)
        if known is None and scan.file.local is not None:
            known = self._first_ranks().get(_node(scan))
        if known is None:
            nodes = sorted({_node(one) for one in self._scans if one.file.local is not None})
            node += nodes.index(_node(scan)) if _node(scan) in nodes else 0
            known = node * self._locals()
        return local + known

    def _first_ranks(self) -> dict[str, int]:
        """The first rank of each node that has a log which names its rank."""
        if self._firsts is None:
            self._firsts = {}
            for scan in self._scans:
                own = {number for _, (kind, _, number) in scan.streams if kind == "rank"}
                if scan.file.local is not None and len(own) == 1:
                    self._firsts.setdefault(_node(scan), own.pop() - scan.file.local)
        return self._firsts

    def _locals(self) -> int:
        """The number of ranks per node."""
        seen = [number for scan in self._scans for _, (kind, _, number) in scan.streams if kind == "local"]
        seen += [scan.file.local for scan in self._scans if scan.file.local is not None]
        return max(seen, default=0) + 1


def _node(scan: FileScan) -> str:
    """A name that is the same for all files of one node."""
    if scan.file.host:
        return scan.file.host
    before, found, _ = scan.file.path.as_posix().rpartition("/attempt_")
    return before if found else ("" if scan.file.local is not None else scan.file.name)


def _attempt(number: int, of_ranks: dict[int, _Streams], told: list[EndLine], common: Mapping[int, int]) -> Attempt:
    ranks = {rank: _rank_log(rank, parts, common) for rank, parts in sorted(of_ranks.items())}
    return Attempt(
        number=number,
        ranks=ranks,
        told=tuple(sorted(told, key=lambda sign: (sign.file.name, sign.offset))),
        num_ranks=max(ranks) + 1,
    )


def _rank_log(rank: int, parts: _Streams, common: Mapping[int, int]) -> RankLog:
    signs = [replace(sign, rank=rank) for _, stream in parts for alike in stream.signs.values() for sign in alike]
    signs.sort(key=lambda sign: (sign.file.name, sign.offset))
    ends_at = {scan.file.name: _last_place(stream, common[id(scan)]) for scan, stream in parts}
    lasting = [sign for sign in signs if sign.offset >= ends_at[sign.file.name] or sign.row.role in ("exit", "named")]
    streams = [stream for _, stream in parts]
    steps = [stream.last_step for stream in streams if stream.last_step is not None]
    began = [stream.began for stream in streams if stream.began is not None]
    ended = [stream.ended for stream in streams if stream.ended is not None]
    enqueued = [stream.enqueued for stream in streams if stream.enqueued is not None]
    hosts = [stream.host for stream in streams if stream.host] + [scan.file.host for scan, _ in parts if scan.file.host]
    return RankLog(
        rank=rank,
        host=hosts[0] if hosts else "",
        signs=tuple(lasting),
        survived=tuple(sign for sign in signs if sign.row.role == "own" and sign not in lasting),
        last_step=max(steps, default=None),
        steps={step: time for stream in streams for step, time in stream.steps.items()},
        enqueued=max(enqueued, default=None),
        began=min(began, default=None),
        ended=max(ended, default=None),
        wrote=any(stream.wrote for stream in streams),
    )


def _common_place(scan: FileScan) -> int:
    """Where all ranks still trained, shown by two new steps in lines that name no rank; -1 if there are none."""
    nobody = [one.marks for (_, key), one in scan.streams.items() if key == NOBODY_KEY]
    return max((marks[-_FEWEST][0] for marks in nobody if len(marks) >= _FEWEST), default=-1)


def _last_place(stream: Stream, common: int) -> int:
    """The last place where the rank continued to train: no sign before it ended the rank."""
    return max(stream.last_step_at, common if stream.last_step is None else -1)


def lines_around(sign: EndLine, attempt: Attempt, job: JobLog) -> tuple[Line, ...]:
    """The lines around a sign that its rank wrote in that attempt; OSError if the file is gone."""
    around = min(_AROUND_BYTES * (attempt.num_ranks if job.is_shared else 1), _MOST_AROUND_BYTES)
    above, below = _bounds(sign, attempt, job)
    first = max(0, sign.offset - around)
    text, begin = b"", 0
    for block in whole_lines(sign.file):
        if begin + len(block) > first:
            text += block[max(0, first - begin) : sign.offset + around - begin]
        begin += len(block)
        if begin >= sign.offset + around:
            break
    number = sign.line - text.count(b"\n", 0, sign.offset - first)
    lines = list(enumerate(text.decode("utf-8", "replace").split("\n"), number))
    # if the piece begins in the middle of a line, that line may contain half a secret
    lines = [
        (at, raw)
        for at, raw in lines[first > 0 :]
        if raw and above < at < below and _is_by(raw, at, sign, job.is_shared)
    ]
    near = [one for one in lines if one[0] <= sign.line][-_LINES_BEFORE:]
    near += [one for one in lines if one[0] > sign.line][:_LINES_AFTER]
    return tuple(Line(at, part, sign.file.name) for at, raw in near for part in clean_line(raw))


def _bounds(sign: EndLine, attempt: Attempt, job: JobLog) -> tuple[float, float]:
    """The last line before and the first line after the sign that show another attempt's end in the same file."""
    others = [
        other.line
        for one in job.attempts
        if one.number != attempt.number
        for other in (*one.told, *(s for log in one.ranks.values() for s in log.signs))
        if other.file == sign.file
    ]
    above = max((line for line in others if line < sign.line), default=0)
    return above, min((line for line in others if line > sign.line), default=float("inf"))


def _is_by(raw: str, at: int, sign: EndLine, is_shared: bool) -> bool:
    """Whether the line is the sign's own, or was written by the same rank."""
    if not is_shared or at == sign.line:
        return True
    own, other = read_speaker(sign.text)[0], read_speaker(raw)[0]
    return own == NOBODY or key_of(own) == key_of(other)
