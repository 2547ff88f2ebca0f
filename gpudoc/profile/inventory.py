"""The files that gpudoc keeps here without being asked: profiles, journals, and leftovers of a killed process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpudoc.locks import InUseError, take_lock
from gpudoc.patterns import Pattern
from gpudoc.profile.model import SCHEMA
from gpudoc.profile.store import LOCAL_FOLDER, user_folder
from gpudoc.temporary import find_folders, remove_folder, why_kept
from gpudoc.units import format_bytes

_FAULT = Pattern(r"gpudoc-fault-[a-z0-9_]{8}\.txt")
_JOURNAL = '"gpudoc.tune.journal.'
_JOURNAL_IS, _FOLDER_IS = "journal of a search", "temporary"
_IN_USE = "in use by a search"
_HEAD_BYTES = 4096
# folders that gpudoc makes, removed once they are empty
_NAMES = ("profiles", "journals", "gpudoc", ".gpudoc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A file or folder that gpudoc made: its kind, size, and why it stays (empty if it may be removed)."""

    path: Path
    what: str
    num_bytes: int
    stays: str = ""

    @property
    def line(self) -> str:
        """The line of a list: '~/x.yaml  profile, 2 KiB'."""
        return f"{self.path}  {self.what}, {format_bytes(self.num_bytes)}"


def find_kept() -> list[Kept]:
    """All files and folders that `gpudoc clean` may remove; never a file that gpudoc did not write, wherever it lies.

    The list leaves out the profiles in .gpudoc/profiles and train's run folders, which are the user's results.
    """
    return [*_profiles(), *_journals(), *_reports(), *_folders()]


def remove(kept: Kept) -> str:
    """Remove one of them, and its folders if they are empty then. Returns why it could not be removed, else ''."""
    try:
        reason = _remove(kept)
    except OSError as problem:
        reason = problem.strerror or str(problem)
    if reason:
        return f"{kept.path}: {reason}"
    for folder in kept.path.parents[:2]:
        if folder.name in _NAMES:
            with suppress(OSError):
                folder.rmdir()
    return ""


def _profiles() -> Iterator[Kept]:
    for path in _files(user_folder(), "*.yaml"):
        # anybody may give a file such a name: its content must say that it is a profile
        if f"schema: {SCHEMA.rpartition('.')[0]}." in _head(path):
            yield Kept(path=path, what="profile", num_bytes=_size(path))


def _journals() -> Iterator[Kept]:
    for folder in (user_folder().parent, LOCAL_FOLDER.parent):
        for path in _files(folder / "journals", "*.jsonl"):
            if _JOURNAL in _head(path).partition("\n")[0]:
                yield Kept(path=path, what=_JOURNAL_IS, num_bytes=_size(path), stays=_why_in_use(path))


def _reports() -> Iterator[Kept]:
    for path in _files(Path(tempfile.gettempdir()), "gpudoc-fault-*"):
        if _FAULT.fullmatch(path.name):
            yield Kept(path=path, what="report of a fault", num_bytes=_size(path))


def _folders() -> Iterator[Kept]:
    for path in find_folders():
        yield Kept(path=path, what=_FOLDER_IS, num_bytes=_size(path), stays=why_kept(path))


def _remove(kept: Kept) -> str:
    if kept.what == _FOLDER_IS:
        return remove_folder(kept.path)
    if kept.what == _JOURNAL_IS:
        # a search may have begun since the list was shown
        try:
            take_lock(kept.path, owner="process", create=False).remove()
        except InUseError:
            return _IN_USE
    kept.path.unlink(missing_ok=True)
    return ""


def _why_in_use(journal: Path) -> str:
    try:
        take_lock(journal, owner="process", create=False).close()
    except InUseError:
        return _IN_USE
    except OSError:
        # no search writes to a file that cannot be opened, and removing it needs only rights on the folder
        pass
    return ""


def _files(folder: Path, pattern: str) -> list[Path]:
    """The user's own files in the folder, without links; none if the folder cannot be read."""
    try:
        return [path for path in sorted(folder.glob(pattern)) if not path.is_symlink() and _is_own(path)]
    except OSError:
        return []


def _is_own(path: Path) -> bool:
    return not hasattr(os, "getuid") or path.lstat().st_uid == os.getuid()


def _head(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _size(path: Path) -> int:
    total = 0
    for one in (path, *(path.rglob("*") if path.is_dir() else ())):
        with suppress(OSError):
            total += one.lstat().st_size if not one.is_dir() else 0
    return total
