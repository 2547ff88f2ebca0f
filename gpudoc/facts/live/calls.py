"""The few system calls in which a training process waits, by number."""

from __future__ import annotations

import platform

# Linux's own tables: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h
_X86_64 = {
    0: "read",
    1: "write",
    2: "open",
    4: "stat",
    7: "poll",
    16: "ioctl",
    17: "pread64",
    18: "pwrite64",
    19: "readv",
    23: "select",
    35: "nanosleep",
    44: "sendto",
    45: "recvfrom",
    47: "recvmsg",
    61: "wait4",
    74: "fsync",
    75: "fdatasync",
    202: "futex",
    230: "clock_nanosleep",
    232: "epoll_wait",
    257: "openat",
    262: "newfstatat",
    271: "ppoll",
    208: "io_getevents",
    281: "epoll_pwait",
    295: "preadv",
    327: "preadv2",
    332: "statx",
}
_GENERIC = {
    29: "ioctl",
    56: "openat",
    63: "read",
    64: "write",
    65: "readv",
    67: "pread64",
    69: "preadv",
    68: "pwrite64",
    73: "ppoll",
    79: "newfstatat",
    82: "fsync",
    83: "fdatasync",
    98: "futex",
    101: "nanosleep",
    115: "clock_nanosleep",
    206: "sendto",
    207: "recvfrom",
    212: "recvmsg",
    260: "wait4",
    22: "epoll_pwait",
    286: "preadv2",
    291: "statx",
}

SYSTEM_CALLS = _X86_64 if platform.machine() == "x86_64" else _GENERIC
_READS = ("read", "pread64", "readv", "preadv", "preadv2", "recvfrom", "recvmsg")
_ON_A_FILE = (*_READS, "write", "pwrite64", "fsync", "fdatasync", "sendto")
WAITS_ON_A_FILE = frozenset(number for number, name in SYSTEM_CALLS.items() if name in _ON_A_FILE)
