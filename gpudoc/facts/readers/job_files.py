"""The files of one job: the logs in a folder, and the rank, host and attempt that the path of each names."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path

from gpudoc.control_characters import escape_line
from gpudoc.errors import GpudocError
from gpudoc.facts.readers.clean import Data
from gpudoc.facts.readers.error_file import is_error_file, read_error_file
from gpudoc.facts.readers.large_file import LargeFile, open_regular
from gpudoc.frozen import dataclass
from gpudoc.patterns import Pattern
from gpudoc.shell import quote_path

_MOST_FILES, _DEEPEST = 16_384, 8
_LOG_NAME = Pattern(
    r"(?i)(?:\.(?:log|out|err|txt|stdout|stderr|gz)|(?:^|[._-])(?:log|out|err|stdout|stderr)s?)(?:[._-]?\d{1,6})?$"
)
_HEAD_BYTES = 4_096
_ERROR_FILE, _MOST_ERROR_BYTES = ".json", 4 << 20
_TORCHRUN = Pattern(r"(?:^|/)attempt_(\d{1,4})/(\d{1,5})/(?:std(?:out|err)\.log|error\.json)$")
_ATTEMPT = Pattern(r"(?i)(?:^|[/_.-])(?:attempt|restart|try|requeue)[_.-]?(\d{1,4})(?=[/_.-])")
_LOCAL = Pattern(r"(?i)(?:^|[/_.-])local_?rank[_.-]?(\d{1,5})(?!\d)")
_RANK = Pattern(r"(?i)(?:^|[/_.-])(?:rank|proc|process|worker|task|trainer)[_.-]?(\d{1,5})(?!\d)")
_HOST = Pattern(r"(?i)(?:^|[/_.-])((?:node|host|gpu|dgx|nid|cn|compute)[a-z-]{0,12}\d{1,6})(?=[/_.-]|$)")
_NUMBER = Pattern(r"\d{1,18}")
# a number of a job is at least this, a rank is below; so many attempts one job has at most
_FIRST_JOB, MOST_RANKS = 1_000, 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """One log: its path, the name that reports cite, and the path's rank, place on the node, host and attempt.

    `data` is a text that is already in memory, None for a file on the disk.

    `rank_by_number` is True if the rank is a number that tells the files apart, and no word says that it is a rank.
    """

    path: Path
    name: str
    data: bytes | None = field(default=None, compare=False, repr=False)
    rank: int | None = None
    local: int | None = None
    host: str = ""
    attempt: int = 0
    rank_by_number: bool = False

    def open(self) -> Data:
        """The bytes of the file, ready to read; OSError if the file is gone."""
        if self.data is not None:
            return self.data
        handle = open_regular(self.path)
        data = LargeFile(handle, os.fstat(handle).st_size)
        return data if self.path.suffix != _ERROR_FILE else read_error_file(data[:_MOST_ERROR_BYTES]) or b""

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing."""
        return self.data == b"" if self.data is not None else self.path.is_file() and not self.path.stat().st_size


def find_logs(folder: Path) -> tuple[Path, ...]:
    """The logs in a folder and below it, in order of their paths; GpudocError when there is none."""
    found, others = [], 0
    for path in _walk(folder):
        if is_log(path):
            found.append(path)
        else:
            others += 1
    if not found:
        held = f"only {others} other files" if others else "it is empty"
        raise GpudocError(
            f"{escape_line(folder)} contains no log: {held}",
            hint=f"pass the folder of a job's logs, or one log: gpudoc doctor {quote_path(folder / 'train.log')}",
        )
    return tuple(found)


def _walk(folder: Path) -> Iterator[Path]:
    """Regular files, in order; no link is followed."""
    count = 0
    depth = len(folder.parts)
    for place, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if not name.startswith("."))
        if len(Path(place).parts) - depth >= _DEEPEST:
            names.clear()
        for name in sorted(files):
            count += 1
            if count > _MOST_FILES:
                raise GpudocError(
                    f"{escape_line(folder)} contains more than {_MOST_FILES:,} files",
                    hint="pass the folder of one job's logs",
                )
            if not name.startswith("."):
                yield Path(place, name)


def is_log(path: Path) -> bool:
    """Whether the file is named like a log and is empty or begins with text, or is an error file of torchrun."""
    if not _LOG_NAME.search(path.name) and path.suffix != _ERROR_FILE:
        return False
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        with os.fdopen(open_regular(path), "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    if path.suffix == _ERROR_FILE:
        return is_error_file(head)
    wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    return wide or path.suffix == ".gz" or head.count(0) <= len(head) // 50


def identify(paths: Sequence[Path]) -> tuple[JobFile, ...]:
    """The files with the rank, host and attempt that each path names; without ranks, by the numbers that differ."""
    root = os.path.commonpath([path.parent for path in paths]) if len(paths) > 1 else ""
    files = [_of_path(path, os.path.relpath(path, root) if root else path.name) for path in paths]
    if any(one.rank is not None or one.local is not None for one in files):
        return tuple(files)
    return tuple(_by_numbers(files))


def _of_path(path: Path, name: str) -> JobFile:
    name = name.replace(os.sep, "/")
    elastic = _TORCHRUN.search(path.as_posix())
    host = _HOST.search(name)
    one = JobFile(path=path, name=name, host=host[1] if host is not None else "")
    if elastic is not None:
        return replace(one, attempt=int(elastic[1]), local=int(elastic[2]))
    attempt, local, rank = _ATTEMPT.search(name), _LOCAL.search(name), _RANK.search(name)
    return replace(
        one,
        attempt=int(attempt[1]) if attempt is not None else 0,
        local=int(local[1]) if local is not None else None,
        rank=int(rank[1]) if rank is not None and local is None else None,
    )


def _by_numbers(files: list[JobFile]) -> Iterable[JobFile]:
    """Read numbers in names that differ only in numbers: small ones are ranks, large ones are jobs, in their order."""
    groups: dict[str, list[int]] = {}
    for place, one in enumerate(files):
        groups.setdefault(_NUMBER.sub("#", one.name), []).append(place)
    for members in groups.values():
        if len(members) < 2:
            continue
        rows = [[int(number) for number in _NUMBER.findall(files[place].name)] for place in members]
        varying = [column for column in range(len(rows[0])) if len({row[column] for row in rows}) > 1]
        ranks = [
            column for column in varying if max(row[column] for row in rows) < MOST_RANKS and _is_small(rows, column)
        ]
        jobs = [column for column in varying if column not in ranks]
        order = sorted({tuple(row[column] for column in jobs) for row in rows})
        for place, row in zip(members, rows, strict=True):
            attempt = order.index(tuple(row[column] for column in jobs))
            rank = row[ranks[-1]] if ranks and not files[place].host else None
            files[place] = replace(
                files[place], attempt=files[place].attempt or attempt, rank=rank, rank_by_number=True
            )
    return files


def _is_small(rows: list[list[int]], column: int) -> bool:
    """Whether the numbers begin near 0 and have few gaps, as ranks do."""
    numbers = {row[column] for row in rows}
    return min(numbers) < _FIRST_JOB and max(numbers) < 4 * len(numbers) + 8
