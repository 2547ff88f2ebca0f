"""Private folders in $TMPDIR for files that gpudoc's processes exchange, and the one place that removes them.

A folder is in use while a lock in it is held: the owner's lock on `.lock`, or, if a job outlives its owner, the job's
lock on the file that it writes into. Nothing else decides, least of all a process id.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpudoc.errors import GpudocError
from gpudoc.locks import InUseError, Lock, take_lock
from gpudoc.patterns import Pattern

NAMES = ("cell", "fix", "demo", "job", "launch", "prove", "reduce", "run", "trial", "tune", "watch")
# a job's processes hold a lock on them as long as one of them can write there
STDOUT, STDERR = "stdout", "stderr"
_LOCK = ".lock"
_HEAD = "a temporary folder of gpudoc"
_STRICT = Pattern(rf"gpudoc-(?:{'|'.join(NAMES)})-\d+-[a-z0-9_]{{8}}")
_ATTEMPTS = 20
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS = Path("/proc/self/mountinfo")
# on any other file system, a lock that was taken on another machine may be invisible
_LOCAL = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}
# the folders that this process has in use
_held_here: set[Path] = set()


class TemporaryFolder:
    """A private folder of this user at `path`, in use until it is closed or its owner ends.

    GpudocError if none can be made.
    """

    def __init__(self, name: str) -> None:
        assert name in NAMES
        try:
            self.path, self._lock = _make(name)
        except OSError as problem:
            reason = problem.strerror or str(problem)
            raise GpudocError(
                f"cannot create a temporary folder: {reason}",
                hint="free some space, or use another folder: TMPDIR=/another/folder gpudoc ...",
            ) from None
        _held_here.add(self.path)

    def close(self) -> None:
        """Remove the folder and all that is in it, as far as it can be removed."""
        with contextlib.suppress(OSError):
            _remove_held(self.path)
        _close(self._lock)
        _held_here.discard(self.path)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def find_folders(names: tuple[str, ...] = NAMES) -> Iterator[Path]:
    """This user's temporary folders of gpudoc, in use or not; a folder that only has such a name is left out."""
    try:
        found = sorted(_place().iterdir())
    except OSError:
        return
    for path in found:
        if _STRICT.fullmatch(path.name) and path.name.split("-")[1] in names and _is_ours(path):
            yield path


def why_kept(path: Path) -> str:
    """Why a folder of `find_folders` must stay: who uses it, or that nobody can know; '' if it may be removed."""
    try:
        with _held(path):
            return ""
    except _KeptError as reason:
        return str(reason)


def remove_folder(path: Path) -> str:
    """Remove a folder of `find_folders` that nobody uses. Returns why it stays, else ''."""
    try:
        with _held(path):
            _remove_held(path)
    except _KeptError as reason:
        return str(reason)
    except OSError as problem:
        return problem.strerror or str(problem)
    return ""


def remove_tree(folder: Path) -> None:
    """Remove one of our folders, even if folders in it were left without any rights; OSError says what stays."""
    folder.chmod(0o700)
    for place, folders, _ in os.walk(folder):
        for name in folders:
            inner = Path(place) / name
            # `os.walk` names links to folders too, and a change of rights would reach what they point to
            if not inner.is_symlink():
                with contextlib.suppress(OSError):
                    inner.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        raise OSError(errno.ENOTEMPTY, "part of it cannot be removed", str(folder))


class _KeptError(Exception):
    """A folder stays; the text says why."""


def _place() -> Path:
    return Path(tempfile.gettempdir())


def _make(name: str) -> tuple[Path, Lock]:
    """A new folder and the lock on it; a folder that `gpudoc clean` examines at this moment is left to it."""
    for _ in range(_ATTEMPTS):
        path = Path(tempfile.mkdtemp(prefix=f"gpudoc-{name}-{os.getpid()}-"))
        try:
            lock = take_lock(path / _LOCK, owner="file")
        except (FileNotFoundError, InUseError):
            continue
        try:
            lock.note(f"{_HEAD}\nprocess {os.getpid()}\n{platform.node()}\n{_boot()}\n")
        except OSError:
            _remove_held(path)
            _close(lock)
            raise
        return path, lock
    raise OSError("another process is removing it")


def _is_ours(path: Path) -> bool:
    """Whether gpudoc made this folder for this user: `_make` left its note there."""
    try:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or not _is_own(status):
            return False
        note = (path / _LOCK).lstat()
        if not stat.S_ISREG(note.st_mode) or not _is_own(note):
            return False
        with (path / _LOCK).open("rb") as stream:
            return stream.read(len(_HEAD) + 1) == f"{_HEAD}\n".encode()
    except OSError:
        return False


def _is_own(status: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or status.st_uid == os.getuid()


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    """Inside, we hold the lock of a folder; _KeptError if somebody uses it, or if its lock cannot show that."""
    if path in _held_here:
        # if locks belong to a process, opening and closing the file here would end our own lock
        raise _KeptError("in use by this process")
    with contextlib.ExitStack() as held:
        own = _take(path / _LOCK)
        held.callback(_close, own)
        _, _, machine, boot = (*own.read().splitlines(), "", "", "", "")[:4]
        if boot != _boot() and not _is_local(path):
            raise _KeptError(f"created on another machine or before a restart ({machine}): remove it there")
        for name in (STDOUT, STDERR):
            if (path / name).exists():
                held.callback(_close, _take(path / name, "a job that is still writing to it"))
        yield


def _take(path: Path, user: str = "") -> Lock:
    try:
        lock = take_lock(path, owner="file", create=False)
    except InUseError as problem:
        raise _KeptError(f"in use by {user or _user_of(str(problem))}") from None
    except OSError as problem:
        raise _KeptError(f"{path.name} cannot be opened: {problem.strerror}") from None
    if lock.why_not:
        lock.close()
        raise _KeptError(f"it cannot be seen here whether it is in use: {lock.why_not}")
    return lock


def _user_of(note: str) -> str:
    _, process, machine = (*note.splitlines(), "", "", "")[:3]
    return f"{process or 'another process'}{f' on {machine}' if machine and machine != platform.node() else ''}"


def _remove_held(path: Path) -> None:
    """Remove a folder whose lock we hold; the lock goes last, so that after a kill the rest can be removed later."""
    problems = []
    for entry in path.iterdir():
        if entry.name == _LOCK:
            continue
        try:
            if entry.is_dir() and not entry.is_symlink():
                remove_tree(entry)
            else:
                entry.unlink()
        except OSError as problem:
            problems.append(problem)
    if problems:
        raise problems[0]
    (path / _LOCK).unlink()
    path.rmdir()


def _close(lock: Lock) -> None:
    with contextlib.suppress(OSError):
        lock.close()


def _boot() -> str:
    """The id that distinguishes this boot from all others; '' if it is not known."""
    try:
        return _BOOT.read_text("utf-8").strip()
    except OSError:
        return ""


def _is_local(path: Path) -> bool:
    """Whether no other machine can have this folder open."""
    if sys.platform != "linux":
        return True
    try:
        lines = _MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return False
    place, kind, longest = path.resolve(), "", -1
    for line in lines:
        before, _, after = line.partition(" - ")
        # the file writes blanks and the like as octal numbers
        point = Pattern(r"\\([0-7]{3})").sub(lambda found: chr(int(found[1], 8)), before.split()[4])
        if place.is_relative_to(point) and len(point) >= longest:
            kind, longest = after.split()[0], len(point)
    return kind in _LOCAL
