"""Stacks of a running job through the py-spy program, which reads the job's memory and never stops it."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping

from gpudoc.facts.model import Absent, Fact
from gpudoc.facts.process import Frame, Glance, Stacks, ThreadStacks
from gpudoc.process.ending import end_process

RATE_HZ = 20.0
FINISH_S = 15.0


def find() -> Fact[str]:
    """The py-spy program: next to this Python, else on PATH (`which py-spy`)."""
    beside = pathlib.Path(sys.executable).with_name("py-spy")
    if os.access(beside, os.X_OK):
        return str(beside)
    found = shutil.which("py-spy")
    return found or Absent("py-spy is not installed")


def record_command(program: str, pid: int, output: pathlib.Path, seconds: float, rate_hz: float = RATE_HZ) -> list[str]:
    """The command that samples `pid` and its children; it writes `output` on interrupt or when it or the job ends."""
    # speedscope keeps the order of time and shares frames: 31 KB where chrometrace takes 1.4 MB for the same 4 seconds
    options = ["--nonblocking", "--threads", "--idle", "--full-filenames"]
    window = ["--rate", f"{rate_hz:.0f}", "--duration", str(max(1, round(seconds)))]
    # without --subprocesses py-spy leaves the process out of the names of its profiles
    where = ["--format", "speedscope", "--output", str(output)]
    return [program, "record", "--pid", str(pid), *where, *options, *window, "--subprocesses"]


def dump_command(program: str, pid: int) -> list[str]:
    """The command that prints one look at `pid` and its children as JSON."""
    return [program, "dump", "--pid", str(pid), "--json", "--nonblocking", "--subprocesses", "--full-filenames"]


class Recorder:
    """A py-spy that records a job in the background, in a separate session so that Ctrl+C does not cut it."""

    def __init__(self, program: str, pid: int, output: pathlib.Path, seconds: float, rate_hz: float = RATE_HZ) -> None:
        self.output = output
        self._pid = pid
        self._messages = output.with_suffix(".err")
        with self._messages.open("wb") as messages:
            self._process = subprocess.Popen(
                record_command(program, pid, output, seconds, rate_hz),
                stdin=subprocess.DEVNULL,
                stdout=messages,
                stderr=messages,
                start_new_session=True,
            )

    @property
    def is_done(self) -> bool:
        """Whether its time is over or the job has ended."""
        return self._process.poll() is not None

    def finish(self) -> Fact[Stacks]:
        """Stop sampling, and return the stacks; absent with py-spy's own reason if it saw nothing."""
        end_process(self._process, ask=signal.SIGINT, grace_s=FINISH_S)
        return read_recording(self._pid, self.output, self._messages)


def read_recording(pid: int, output: pathlib.Path, messages: pathlib.Path) -> Fact[Stacks]:
    """The stacks in py-spy's file; absent with a reason that names the remedy if there are none."""
    try:
        document = json.loads(output.read_text("utf-8"))
    except (OSError, ValueError):
        text = messages.read_text("utf-8", "replace") if messages.exists() else ""
        return Absent(explain_refusal(text, pid))
    stacks = parse_speedscope(document)
    return stacks if stacks.threads else Absent("py-spy saw no Python thread")


def explain_refusal(text: str, pid: int | None = None) -> str:
    """The reason why py-spy saw nothing, from its messages and from the permission to inspect `pid`."""
    # with --subprocesses py-spy says "no python processes found" about a process that it may not inspect
    if pid is not None and _is_closed(pid):
        return "ptrace refused: " + _ptrace_remedy()
    if "Permission" in text or "not permitted" in text or "os error 1)" in text:
        return "ptrace refused: " + _ptrace_remedy()
    if "python version" in text or "PyInterpreterState" in text:
        return "not a Python process that py-spy knows"
    gone = ("Check that the process is running", "No such process", "No python processes found")
    if any(sign in text for sign in gone):
        return "the process has ended"
    first = next((line for line in text.splitlines() if line.strip()), "")
    return f"py-spy saw nothing: {first}" if first else "py-spy saw nothing"


def _is_closed(pid: int) -> bool:
    try:
        os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 - the kernel asks for the same right as ptrace
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _ptrace_remedy() -> str:
    try:
        scope = int(pathlib.Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        scope = 0
    if scope >= 1 and os.geteuid() != 0:
        return (
            f"kernel.yama.ptrace_scope is {scope}; run as root, or start the job with `gpudoc doctor -- COMMAND`"
            if scope == 1
            else f"kernel.yama.ptrace_scope is {scope}; only root may look"
        )
    if pathlib.Path("/.dockerenv").exists() or pathlib.Path("/run/.containerenv").exists():
        return "start the container with --cap-add=SYS_PTRACE"
    return "the job belongs to another user; run as that user or as root"


def parse_speedscope(document: Mapping[str, object]) -> Stacks:
    """Stacks from a speedscope document as py-spy 0.4 writes it (`sampled` profiles, one per thread)."""
    shared = document.get("shared")
    raw = shared.get("frames") if isinstance(shared, dict) else None
    frames = tuple(
        Frame(str(f.get("name") or ""), str(f.get("file") or ""), int(f.get("line") or 0))
        for f in (raw if isinstance(raw, list) else [])
        if isinstance(f, dict)
    )
    # each sample begins with labels for the processes and the thread, which are not frames
    labels = {i for i, f in enumerate(frames) if not f.file and f.function.startswith(("process ", "thread ("))}
    profiles = document.get("profiles")
    threads = [t for p in (profiles if isinstance(profiles, list) else []) if (t := _thread(p, labels)) is not None]
    return Stacks(rate_hz=RATE_HZ, start_s=0.0, frames=frames, threads=tuple(threads))


def _thread(profile: object, labels: Collection[int]) -> ThreadStacks | None:
    if not isinstance(profile, dict):
        return None
    # py-spy names a profile 'Process 5251 Thread 5251 "MainThread"'; without thread names the quotes are missing
    words = str(profile.get("name", "")).split(maxsplit=4)
    if len(words) < 4 or words[0] != "Process" or not words[1].isdecimal():
        return None
    tid = int(words[3], 16) if words[3].lower().startswith("0x") else int(words[3]) if words[3].isdecimal() else -1
    raw = profile.get("samples")
    samples = tuple(
        tuple(i for i in s if i not in labels) for s in (raw if isinstance(raw, list) else []) if isinstance(s, list)
    )
    name = words[4].strip('"') if len(words) > 4 else ""
    return ThreadStacks(pid=int(words[1]), tid=tid, name=name, samples=samples)


def parse_dump(text: str, time_s: float) -> list[Glance]:
    """The main threads in the output of `py-spy dump --json`; empty when it is not complete."""
    try:
        threads = json.loads(text)
    except ValueError:
        return []
    if not isinstance(threads, list):
        return []
    return [
        Glance(
            time_s=time_s,
            pid=int(t["pid"]),
            frames=tuple(
                Frame(str(f["name"]), str(f["filename"]), int(f["line"])) for f in reversed(t.get("frames") or [])
            ),
            active=bool(t.get("active")),
            holds_gil=bool(t.get("owns_gil")),
        )
        for t in threads
        if isinstance(t, dict) and t.get("os_thread_id") == t.get("pid")
    ]
