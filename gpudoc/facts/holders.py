"""Who holds a GPU: the user, age, program, container and job behind a process id (`ps -o user,etimes,args -p PID`)."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

from gpudoc.facts.container import ROOT
from gpudoc.facts.files import exists, link_name, list_names, read_text
from gpudoc.facts.model import Absent, Fact, GpuProcess
from gpudoc.patterns import MULTILINE, Pattern

_HIDDEN = Absent("the process is not visible here")
_ID = r"(?P<id>[0-9a-f]{12})[0-9a-f]{52}"
_CONTAINERS: tuple[tuple[str, Pattern], ...] = (
    ("kubernetes", Pattern(r"kubepods.{0,80}?pod(?P<id>[0-9a-f]{8}[-_][0-9a-f_-]{27})")),
    ("podman", Pattern(rf"libpod-{_ID}")),
    ("docker", Pattern(rf"docker[-/]{_ID}")),
    ("containerd", Pattern(rf"containerd[-/:]{_ID}")),
    ("lxc", Pattern(r"/lxc(?:\.payload)?[./](?P<id>[\w.-]+)")),
)
_JOB = Pattern(r"slurm.{0,80}?/job_(?P<id>\d+)(?:/|$)", MULTILINE)
# interpreters, which take the program's name as an argument
_RUNNERS = Pattern(r"(?:python|pypy|bash|sh|perl|ruby|node|java)[\d.]*$")
_NAME_IN_CONFIG = Pattern(r'"Name":"/?([\w.-]+)"')


def describe(pid: int, root: Path = ROOT) -> GpuProcess:
    """The process as /proc shows it; each part that /proc hides from this user is absent with that reason."""
    place = f"proc/{pid}"
    # if /proc hides other users' processes, it hides process 1, too
    hidden = not exists(root, "proc/1")
    alive: Fact[bool] = Absent("/proc hides other users' processes") if hidden else exists(root, place)
    groups = read_text(root, f"{place}/cgroup")
    owner = _owner(root, place)
    return GpuProcess(
        pid=pid,
        alive=alive,
        name=_visible(read_text(root, f"{place}/comm")),
        user=owner if isinstance(owner, Absent) else _user_name(root, owner),
        own=owner if isinstance(owner, Absent) else _is_own(root, place, owner),
        age_s=_age(root, place),
        command=_command(root, place),
        container=groups if isinstance(groups, Absent) else _container(root, groups),
        job=groups if isinstance(groups, Absent) else _job(groups),
    )


def _visible(fact: Fact[str]) -> Fact[str]:
    return _HIDDEN if isinstance(fact, Absent) else fact


def _owner(root: Path, place: str) -> Fact[int]:
    status = read_text(root, f"{place}/status")
    if isinstance(status, Absent):
        return _HIDDEN
    found = Pattern(r"^Uid:\s+(\d+)", MULTILINE).search(status)
    return int(found[1]) if found else Absent(f"no owner in /{place}/status")


def _user_name(root: Path, uid: int) -> Fact[str]:
    known = read_text(root, "etc/passwd")
    rows = [] if isinstance(known, Absent) else [line.split(":") for line in known.splitlines()]
    name = next((row[0] for row in rows if len(row) > 2 and row[2] == str(uid)), "")
    if name or root != ROOT:
        return name or f"uid {uid}"
    if sys.platform != "win32":
        import pwd

        with contextlib.suppress(KeyError, OSError):
            return pwd.getpwuid(uid).pw_name
    return f"uid {uid}"


def caller() -> int:
    """The id of the calling user: under sudo, the user who called sudo."""
    if sys.platform == "win32":
        return -1  # on Windows no process has a numeric owner
    behind = os.environ.get("SUDO_UID", "")
    return int(behind) if os.getuid() == 0 and behind.isdecimal() else os.getuid()


def _is_own(root: Path, place: str, uid: int) -> Fact[bool]:
    """Whether the caller owns the process and the number means that process: a container has its own numbers."""
    if uid != caller():
        return False
    names = list_names(root, f"{place}/fd")
    if isinstance(names, Absent):
        return Absent("its open files cannot be read")
    opened = (link_name(root, f"{place}/fd/{name}") for name in names)
    if any(not isinstance(name, Absent) and name.startswith("nvidia") for name in opened):
        return True
    return Absent("the process with this number has no GPU open, so the number belongs to another container")


def _age(root: Path, place: str) -> Fact[float]:
    stat, uptime = read_text(root, f"{place}/stat"), read_text(root, "proc/uptime")
    if sys.platform == "win32" or isinstance(stat, Absent) or isinstance(uptime, Absent):
        return _HIDDEN
    # the name is in parentheses and may contain blanks; the start time is the 20th field after it
    after = stat.rpartition(")")[2].split()
    try:
        return max(0.0, float(uptime.split()[0]) - int(after[19]) / os.sysconf("SC_CLK_TCK"))
    except (IndexError, ValueError):
        return Absent(f"unreadable: /{place}/stat")


def _command(root: Path, place: str) -> Fact[str]:
    """The program, and the script or module that it runs; no other arguments, which may contain paths and keys."""
    line = read_text(root, f"{place}/cmdline")
    if isinstance(line, Absent) or not line.strip("\0"):
        return _HIDDEN if isinstance(line, Absent) else Absent("the process has no command line")
    words = [word for word in line.split("\0") if word]
    program = _base(words[0])
    if not _RUNNERS.match(program):
        return program
    if "-m" in words[1:4] and words.index("-m") + 1 < len(words):
        return f"{program} -m {_base(words[words.index('-m') + 1])}"
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    return f"{program} {_base(script)}" if script and Pattern(r"^[\w./~-]{1,200}$").search(script) else program


def _base(word: str) -> str:
    return word.split()[0].rsplit("/", 1)[-1][:40] if word.split() else ""


def _container(root: Path, groups: str) -> Fact[str]:
    for kind, pattern in _CONTAINERS:
        found = pattern.search(groups)
        if found:
            name = _container_name(root, kind, groups)
            return f"{kind} {found['id'].replace('_', '-')}" + (f" ({name})" if name else "")
    return Absent("not in a container")


def _container_name(root: Path, kind: str, groups: str) -> str:
    """Docker's name for the container if Docker's own folder may be read, else ''."""
    whole = Pattern(r"[0-9a-f]{64}").search(groups)
    if kind != "docker" or whole is None:
        return ""
    config = read_text(root, f"var/lib/docker/containers/{whole[0]}/config.v2.json")
    if isinstance(config, Absent):
        return ""
    try:
        return str(json.loads(config).get("Name", "")).lstrip("/")
    except (ValueError, AttributeError):
        found = _NAME_IN_CONFIG.search(config)
        return found[1] if found else ""


def _job(groups: str) -> Fact[str]:
    found = _JOB.search(groups)
    return f"slurm {found['id']}" if found else Absent("not in a job of SLURM")
