"""Where the processes of a tree listen for connections, read from the kernel's own tables."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import psutil

_LISTEN = "0A"
# as the kernel writes them: 127.0.0.1 and ::1
_LOOPBACK = ("0100007F", "00000000000000000000000001000000")


def listening(pid: int, *, beyond_loopback: bool = False) -> list[str]:
    """ADDRESS:PORT, as /proc/net/tcp and tcp6 have them, of every socket on which `pid` or a descendant listens."""
    root = psutil.Process(pid)
    inodes = {inode for process in (root, *root.children(recursive=True)) for inode in _sockets(process.pid)}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            address = words[1].partition(":")[0]
            if words[3] == _LISTEN and words[9] in inodes and not (beyond_loopback and address in _LOOPBACK):
                found.append(words[1])
    return found


def _sockets(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if match := re.fullmatch(r"socket:\[(\d+)\]", str(entry.readlink())):
                    found.add(match[1])
    return found
