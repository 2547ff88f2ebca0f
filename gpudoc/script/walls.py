"""The walls of a cell: namespaces, a private layer over every file system, a network of loopback only.

Runs in the process that becomes a trial's first one, never in gpudoc's own. Standard library only.

An ordinary user builds them in a user namespace that maps only this user. The kernel then refuses an overlay over a
folder with mounts below it, since the overlay would show what they hide: such a folder is rebuilt, entry by entry. And
files of another owner or group cannot be copied into the private layer: folders on the way to where a script writes
are therefore made there in advance, and writing to such a file fails (EOVERFLOW).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import shutil
import socket
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 0x20, 0x1000, 0x4000, 0x40000
_NOATIME, _NODIRATIME, _RELATIME = 0x400, 0x800, 0x200000
_DETACH = 2
# the same on every machine
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = 442, -100, 0x8000, 1
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 1, 0x40
# devices, and the kernel's own file systems: they hold no work of users
_PASSED = ("/dev", "/proc", "/sys")
# places where root changes the machine by writing to /proc
_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi")
# the most entries of a folder that is rebuilt; files up to this size are copied into it, larger ones are read-only
_MOST_ENTRIES, _COPIED_BYTES = 5000, 1 << 20
# holds new entries in such a folder; everything else goes to the layers
_FRAME = "size=64m,mode=755"
# how many folders, and how deep, are searched for other owners below the folder in which the command starts
_MOST_FOLDERS, _DEEPEST = 5000, 4
_LIBC = ctypes.CDLL(None, use_errno=True)


class WallError(Exception):
    """A wall that cannot be built here: `what` (files, network, processes) and why."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(why)
        self.what = what


def foreign(near: Sequence[str]) -> list[str]:
    """Folders to make in the layers in advance, parents first: the path to each of `near`, where the script writes, and
    folders of other owners or groups below the first of `near`. Call it before `separate`, which hides the owners.
    """
    found: dict[str, None] = {}
    for path in near:
        parts = [part for part in path.split("/") if part]
        found.update((f"/{'/'.join(parts[: count + 1])}", None) for count in range(len(parts)))
    found.update((path, None) for path in _foreign_below(near[0]))
    return list(found)


def _foreign_below(path: str) -> Iterator[str]:
    uid, gid, seen = os.getuid(), os.getgid(), 0
    waiting = [(path, 0)]
    while waiting:
        folder, depth = waiting.pop(0)
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    continue
                seen += 1
                if seen > _MOST_FOLDERS:
                    return
                state = entry.stat(follow_symlinks=False)
                if (state.st_uid, state.st_gid) != (uid, gid):
                    yield entry.path
                if depth < _DEEPEST:
                    waiting.append((entry.path, depth + 1))


def separate(*, user: bool, network: bool, processes: bool) -> None:
    """Leave the namespaces of the caller; with `processes` the next child is the first process of a new namespace."""
    uid, gid = os.getuid(), os.getgid()
    if user:
        _unshare(_NEWUSER, "files", "user")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            try:
                with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                    file.write(text)
            except OSError as problem:
                raise WallError("files", f"user namespaces: {name}: {problem.strerror}") from problem
    _unshare(_NEWNS, "files", "mnt")
    _unshare(_NEWIPC, "files", "ipc")
    if network:
        _unshare(_NEWNET, "network", "net")
        _loopback_up()
    if processes:
        _unshare(_NEWPID, "processes", "pid")


@dataclass(frozen=True)
class CellPlan:
    """What a cell is built from: two empty folders for its layers, bytes that may be written, folders that stay.

    The layers are kept in memory, at `place`; they are on `disk` if the kernel's tmpfs keeps no attributes of an
    ordinary user (before Linux 6.6). `made` are folders that are made in the layers in advance.
    """

    place: str
    disk: str
    room_bytes: int
    shared: Sequence[str]
    made: Sequence[str]
    own_processes: bool
    in_memory: bool = True


def build(plan: CellPlan) -> int:
    """Put a private layer over every file system but devices, and make that the root.

    Returns a descriptor of the folder that holds the layers; `fstatvfs` on it says how full that is.
    """
    try:
        _mount("none", "/", "", _REC | _PRIVATE)
        _mount("tmpfs", plan.place, "tmpfs", 0, f"size={plan.room_bytes},mode=755")
        layers = f"{plan.place}/layers" if plan.in_memory and _keeps_attributes(plan.place) else plan.disk
        house = _House(plan, layers)
        layer = os.open(layers, os.O_RDONLY | os.O_DIRECTORY)
        house.build()
        for folder in plan.shared:
            _mount(folder, house.inside(folder), "", _BIND)
        _devices(house.root, plan.own_processes)
        os.chdir(house.root)
        _pivot()
        return layer
    except OSError as problem:
        where = f" ({problem.filename})" if problem.filename else ""
        raise WallError("files", f"private file systems: {problem.strerror}{where}") from problem


class _House:
    """The new root, built next to the old one."""

    def __init__(self, plan: CellPlan, layers: str) -> None:
        self.root = f"{plan.place}/root"
        self._layers = layers
        self._made = plan.made
        self._number = 0
        self._entries = 0
        self._points = sorted(_mount_points() - {"/", plan.place})
        self._is_mapped = _maps_everyone()
        for folder in (self.root, self._layers):
            os.makedirs(folder, 0o755, exist_ok=True)
        _mount("tmpfs", self.root, "tmpfs", 0, _FRAME)

    def inside(self, path: str) -> str:
        return self.root + path

    def build(self) -> None:
        for path in _PASSED:
            if os.path.isdir(path):
                os.mkdir(self.inside(path), 0o755)
        if self._is_mapped and self._overlay("/"):
            # the overlay lies over the frame, so everything is found in it
            self._passed_over(self._points)
        else:
            self._anew("/")

    def _passed_over(self, points: Iterable[str]) -> None:
        for point in points:
            if not _is_in(point, _PASSED):
                self._one(point)

    def _one(self, path: str) -> None:
        """Put one folder or file into the new root, with everything below it."""
        try:
            state = os.lstat(path)
        except OSError:
            return
        if stat.S_ISLNK(state.st_mode):
            with contextlib.suppress(OSError):
                os.symlink(os.readlink(path), self.inside(path))
        elif not stat.S_ISDIR(state.st_mode):
            self._file(path, state)
        else:
            self._folder(path, state)

    def _folder(self, path: str, state: os.stat_result) -> None:
        target = self.inside(path)
        if not os.path.isdir(target):
            os.mkdir(target, stat.S_IMODE(state.st_mode) | 0o500)
        below = [point for point in self._points if point.startswith(path + "/")]
        if not os.access(path, os.X_OK):
            os.chmod(target, 0)
        elif (self._is_mapped or not below) and self._overlay(path):
            pass
        elif below:
            self._anew(path)
        else:
            self._read_only(path)

    def _anew(self, path: str) -> None:
        """Rebuild a folder with mounts below it, entry by entry; only its mounts if it cannot be listed."""
        prefix = path.rstrip("/") + "/"
        try:
            names = os.listdir(path)
        except OSError:
            names = []
        names = sorted({*names, *(p[len(prefix) :].partition("/")[0] for p in self._points if p.startswith(prefix))})
        self._entries += len(names)
        if self._entries > _MOST_ENTRIES:
            raise OSError(errno.E2BIG, "a folder with mounts below it holds too much", path)
        for name in names:
            if prefix + name not in _PASSED:
                self._one(prefix + name)

    def _overlay(self, path: str) -> bool:
        """Put a private layer over a folder; False if its file system does not support that."""
        self._number += 1
        upper, work = f"{self._layers}/{self._number}", f"{self._layers}/{self._number}-work"
        os.mkdir(upper)
        os.mkdir(work)
        _take_mode(path, upper)
        prefix = path.rstrip("/") + "/"
        for folder in () if self._is_mapped else self._made:
            if folder.startswith(prefix):
                own = f"{upper}/{folder[len(prefix) :]}"
                with contextlib.suppress(OSError):
                    os.mkdir(own)
                    _take_mode(folder, own)
        options = f"upperdir={upper},workdir={work}" + ("" if self._is_mapped else ",userxattr")
        try:
            # the lower folder is the current one, because a colon or a comma in its name would break the options
            os.chdir(path)
            _mount("overlay", self.inside(path), "overlay", 0, f"lowerdir=.,{options}")
        except OSError:
            return False
        finally:
            os.chdir("/")
        return True

    def _file(self, path: str, state: os.stat_result) -> None:
        target = self.inside(path)
        small = stat.S_ISREG(state.st_mode) and state.st_size <= _COPIED_BYTES
        if small and not os.path.exists(target):
            with contextlib.suppress(OSError):
                shutil.copyfile(path, target)
                shutil.copymode(path, target)
                return
        self._read_only(path, is_file=True)

    def _read_only(self, path: str, *, is_file: bool = False) -> None:
        """Make a path that cannot have a layer readable but not writable."""
        target = self.inside(path)
        if is_file and not os.path.exists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        try:
            _mount(path, target, "", _BIND | _REC)
        except OSError:
            # an unreachable device or pipe is left out
            return
        _make_read_only(target)


def _devices(root: str, own_processes: bool) -> None:
    """Mount the folders without layers, /dev and /sys read-only: devices still take writes, but nothing can be made."""
    _mount("/dev", f"{root}/dev", "", _BIND | _REC)
    _make_read_only(f"{root}/dev")
    memory = os.path.realpath("/dev/shm")
    if os.path.isdir(memory):
        size = os.statvfs(memory)
        _mount("tmpfs", root + memory, "tmpfs", _NOSUID | _NODEV, f"size={size.f_blocks * size.f_frsize},mode=1777")
    if own_processes:
        try:
            _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
        except OSError as problem:
            raise WallError("processes", f"its /proc: {problem.strerror}") from problem
    else:
        _mount("/proc", f"{root}/proc", "", _BIND | _REC)
    if os.path.isdir("/sys"):
        _mount("/sys", f"{root}/sys", "", _BIND | _REC)
        _make_read_only(f"{root}/sys")
    for path in _SETTINGS:
        with contextlib.suppress(OSError):
            _mount(root + path, root + path, "", _BIND)
            _make_read_only(root + path)


def _take_mode(path: str, own: str) -> None:
    """Give `own` the mode of a folder, without write permission if this user may not write there."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if not os.access(path, os.W_OK):
        mode &= ~0o222
    os.chmod(own, mode | 0o500)


def _keeps_attributes(folder: str) -> bool:
    try:
        os.setxattr(folder, "user.gpudoc" if not _maps_everyone() else "trusted.gpudoc", b"")
    except OSError:
        return False
    return True


def _maps_everyone() -> bool:
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return any(int(line.split()[2]) > 1 for line in file)


def _mount_points() -> set[str]:
    """The mount points that no later mount hides."""
    found = set()
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            words = line.split()
            path = (
                words[4].encode("utf-8", "surrogateescape").decode("unicode_escape") if "\\" in words[4] else words[4]
            )
            if words[0] == _mount_of(path):
                found.add(path)
    return found


def _mount_of(path: str) -> str | None:
    try:
        number = os.open(path, os.O_PATH)
    except OSError:
        return None
    try:
        with open(f"/proc/self/fdinfo/{number}", encoding="ascii") as file:
            return next((line.split()[1] for line in file if line.startswith("mnt_id:")), None)
    finally:
        os.close(number)


def _is_in(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _make_read_only(path: str) -> None:
    wanted = struct.pack("QQQQ", _ATTR_RDONLY, 0, 0, 0)
    place = ctypes.c_char_p(path.encode("utf-8", "surrogateescape"))
    number, here = ctypes.c_long(_MOUNT_SETATTR), ctypes.c_long(_AT_FDCWD)
    if _LIBC.syscall(number, here, place, ctypes.c_long(_AT_RECURSIVE), wanted, ctypes.c_long(len(wanted))) == 0:
        return
    # before Linux 5.12, mounts are remounted one by one
    for point in [path, *(point for point in _mount_points() if point.startswith(path + "/"))]:
        _remount_read_only(point)


def _remount_read_only(path: str) -> None:
    """Remount read-only if possible: the flags of the mount must be repeated, and a refusal is ignored."""
    with contextlib.suppress(OSError):
        flags = os.statvfs(path).f_flag
        kept = flags & (_NOSUID | _NODEV | _NOEXEC)
        for bit, flag in ((os.ST_NOATIME, _NOATIME), (os.ST_NODIRATIME, _NODIRATIME), (os.ST_RELATIME, _RELATIME)):
            kept |= flag if flags & bit else 0
        _mount("none", path, "", _REMOUNT | _BIND | _RDONLY | kept)


def _loopback_up() -> None:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP | _IFF_RUNNING))


def _pivot() -> None:
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None or _LIBC.syscall(number, b".", b"."):
        os.chroot(".")
    elif _LIBC.umount2(b".", _DETACH):
        _fail(".")
    os.chdir("/")


def _unshare(flag: int, what: str, name: str) -> None:
    if _LIBC.unshare(flag):
        number = ctypes.get_errno()
        why = f"user.max_{name}_namespaces allows no more" if number == errno.ENOSPC else os.strerror(number)
        raise WallError(what, f"{name} namespaces: {why}")


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = [word.encode("utf-8", "surrogateescape") for word in (source, target, kind, options)]
    if _LIBC.mount(words[0], words[1], words[2] or None, ctypes.c_ulong(flags), words[3] or None):
        _fail(target)


def _fail(path: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), path)
