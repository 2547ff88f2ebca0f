"""Chooses the process to watch: the job behind the user's PID, or a clear reason why there is none."""

from __future__ import annotations

import os
import pathlib
import sys

from gpudoc.errors import GpudocError
from gpudoc.facts.live.tree import descendants, read_environment, read_stat, read_text, read_words
from gpudoc.frozen import dataclass

LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")


@dataclass(frozen=True, slots=True)
class WatchTarget:
    """The process to watch with its descendants, and a note for the user if it is not the given process."""

    pid: int
    note: str = ""


def check_system(root: str = "/proc") -> None:
    """Raise GpudocError if jobs cannot be watched here: watching reads Linux's /proc."""
    if sys.platform != "linux" or not pathlib.Path(root, "self").exists():
        raise GpudocError("watching a job needs the /proc of Linux", hint="gpudoc doctor train.log")


def choose(pid: int, root: str = "/proc") -> WatchTarget:
    """The topmost Python process of the job that `pid` belongs to; GpudocError when there is nothing to watch."""
    check_system(root)
    stat = read_stat(pid, root=root)
    if pid == os.getpid():
        raise GpudocError(f"process {pid} is this gpudoc itself", hint="pgrep -af python")
    if stat is None:
        raise GpudocError(f"no process {pid} runs here", hint=_elsewhere(pid))
    if stat.state in "ZX":
        raise GpudocError(f"process {pid} ({stat.name}) has finished", hint="pass the PID of a running job")
    launcher = _launcher_above(pid, root)
    if launcher is not None:
        return WatchTarget(launcher, f"{pid} is one rank; watching all ranks of its launcher {launcher}")
    if is_python(pid, root):
        return WatchTarget(pid)
    tree = descendants(pid, root)[1:]
    # gpudoc itself may have been started by the same shell
    own = set(descendants(os.getpid(), root)) if os.getpid() in tree else set()
    below = [child for child in tree if child not in own and is_python(child, root)]
    if below:
        # a shell or `uv run` starts one Python; the first in order is above its own workers
        return WatchTarget(below[0], f"{pid} ({stat.name}) is not Python; watching {below[0]} below it")
    raise GpudocError(
        f"process {pid} ({stat.name}) is not a Python process and has started none",
        hint="pass the PID of the Python process that trains: pgrep -af python",
    )


def _elsewhere(pid: int) -> str:
    inside = pathlib.Path("/.dockerenv").exists() or pathlib.Path("/run/.containerenv").exists()
    if inside:
        return f"inside a container only its own processes are visible: run gpudoc where {pid} was listed"
    return "pass the PID of a running job: pgrep -af python"


def is_python(pid: int, root: str = "/proc") -> bool:
    """Whether the process runs a Python interpreter, judged by its executable or a loaded Python library."""
    try:
        name = os.path.basename(os.readlink(f"{root}/{pid}/exe"))  # noqa: PTH115, PTH119 - may name a deleted file
    except OSError:
        words = read_words(pid, root)
        name = words[0].rpartition("/")[2] if words else ""
    return name.startswith("python") or "libpython3" in read_text(f"{root}/{pid}/maps")


def loads_torch(pid: int, root: str = "/proc") -> bool:
    """Whether the process has torch's library in its memory (`grep libtorch /proc/PID/maps`)."""
    return "/libtorch_" in read_text(f"{root}/{pid}/maps")


def _launcher_above(pid: int, root: str) -> int | None:
    if not read_environment(pid, ("RANK", "LOCAL_RANK"), root):
        return None
    stat = read_stat(pid, root=root)
    while stat is not None and stat.parent > 1:
        words = read_words(stat.parent, root)
        if is_python(stat.parent, root) and any(_names_launcher(word) for word in words[:4]):
            return stat.parent
        stat = read_stat(stat.parent, root=root)
    return None


def _names_launcher(word: str) -> bool:
    return word in LAUNCHERS or word.rpartition("/")[2] in LAUNCHERS
