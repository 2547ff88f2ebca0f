"""A disk that is full: for the files of this process, or a small tmpfs that only what runs there sees, and fills."""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

_MOUNT = 'mount -t tmpfs -o size=64k none "$0" && exec "$@"'
# the last pages, too: a file of a few bytes takes a page that a larger one did not get
FILL = """
def fill(folder):
    import os
    for number in range(100):
        with open(os.path.join(folder, f"filling-{number}"), "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                if not number:
                    continue
                return
"""


@functools.cache
def _why_not(folder: str) -> str:
    command = ["unshare", "-rm", "sh", "-c", _MOUNT, folder, "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as problem:
        return str(problem)
    return "" if done.returncode == 0 else done.stderr.strip()


def run_on_small_disk(folder: Path, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `command` where `folder` is a disk of 64 KiB; skips where no such disk can be made."""
    why_not = _why_not(str(folder))
    if why_not:
        pytest.skip(f"no tmpfs of its own here: {why_not}")
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", _MOUNT, str(folder), *command],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@contextlib.contextmanager
def full_at(size):
    """No file can grow beyond `size` bytes; the error is EFBIG, 'File too large'."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
