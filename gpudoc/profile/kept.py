"""What gpudoc keeps on this machine beside the files that were asked for: profiles, journals, leftovers of a kill."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpudoc.process.lifetime import is_running
from gpudoc.profile.model import SCHEMA
from gpudoc.profile.store import LOCAL_FOLDER, user_folder
from gpudoc.units import format_bytes

# the names that `own_prefix` is given: folders that a command removes itself unless it is killed
TEMPORARY = ("cell", "job", "launch", "prove", "reduce", "run", "trial", "tune", "watch")
_TEMPORARY = re.compile(rf"gpudoc-(?:{'|'.join(TEMPORARY)})-(?P<pid>\d+)-[a-z0-9_]{{8}}")
_FAULT = re.compile(r"gpudoc-fault-[a-z0-9_]{8}\.txt")
_JOURNAL = '"gpudoc.tune.journal.'
_HEAD_BYTES = 4096
# folders that gpudoc makes, removed once they are empty
_NAMES = ("profiles", "journals", "gpudoc", ".gpudoc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A file or folder that gpudoc made: what it is, its size, and who uses it now; empty when nobody does."""

    path: Path
    what: str
    num_bytes: int
    used_by: str = ""

    @property
    def line(self) -> str:
        """'~/x.yaml  profile, 2 KiB', as a list shows it."""
        return f"{self.path}  {self.what}, {format_bytes(self.num_bytes)}"


def find_kept() -> list[Kept]:
    """All that `gpudoc clean` may remove. A file that gpudoc did not write is never in it, wherever it lies.

    The profiles in .gpudoc/profiles and train's run folders are results of the user's and not listed.
    """
    temporary = list(_temporary())
    search = next((one.used_by for one in temporary if one.path.name.startswith("gpudoc-tune-") and one.used_by), "")
    return [*_profiles(), *_journals(search), *temporary]


def remove(kept: Kept) -> str:
    """Remove one of them, and its folders when they are empty then; why it could not be removed, else ''."""
    try:
        if kept.path.is_dir():
            shutil.rmtree(kept.path)
        else:
            kept.path.unlink(missing_ok=True)
    except OSError as problem:
        return f"{kept.path}: {problem.strerror or problem}"
    for folder in kept.path.parents[:2]:
        if folder.name in _NAMES:
            with suppress(OSError):
                folder.rmdir()
    return ""


def _profiles() -> Iterator[Kept]:
    for path in _files(user_folder(), "*.yaml"):
        # a name that anybody may give: the file must say itself what it is
        if f"schema: {SCHEMA.rpartition('.')[0]}." in _head(path):
            yield Kept(path=path, what="profile", num_bytes=_size(path))


def _journals(search: str) -> Iterator[Kept]:
    for folder in (user_folder().parent, LOCAL_FOLDER.parent):
        for path in _files(folder / "journals", "*.jsonl"):
            if _JOURNAL in _head(path).partition("\n")[0]:
                yield Kept(path=path, what="journal of a search", num_bytes=_size(path), used_by=search)


def _temporary() -> Iterator[Kept]:
    for path in _files(Path(tempfile.gettempdir()), "gpudoc-*"):
        if _FAULT.fullmatch(path.name):
            yield Kept(path=path, what="report of a fault", num_bytes=_size(path))
        elif (match := _TEMPORARY.fullmatch(path.name)) and path.is_dir():
            owner = f"process {match['pid']}" if is_running(int(match["pid"])) else ""
            yield Kept(path=path, what="temporary", num_bytes=_size(path), used_by=owner)


def _files(folder: Path, pattern: str) -> list[Path]:
    """This user's own files there, links left out; none where the folder cannot be read."""
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
