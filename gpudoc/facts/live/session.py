"""The entry point for a running job: `watch` runs every sampler on it for some seconds, driven by one clock."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from gpudoc.facts.live import handoff, spy
from gpudoc.facts.live.close_up import SECONDS, CloseUp
from gpudoc.facts.live.limits import LimitsSampler
from gpudoc.facts.live.nvml import GpuRecorder
from gpudoc.facts.live.sources import read_lines
from gpudoc.facts.live.target import choose
from gpudoc.facts.live.tree import TreeSampler, directory_of, read_words
from gpudoc.facts.model import Absent, Fact
from gpudoc.facts.process import Glance, Stacks, Watch
from gpudoc.process.ending import end_process
from gpudoc.progress import SILENT, Progress
from gpudoc.temporary import TemporaryFolder

GLANCE_S = 0.1
MEASURE_S = 0.5
# one look with py-spy dump takes about 16 ms of a core, so 1.5 % of a core
DUMP_S = 1.0
# the close-up begins at this time: by then every process of a long-running job has been seen
CLOSE_UP_AFTER_S = 2.0
# the length of each short look that is judged during the watch, and how many in a row must agree
PART_S, SAME_PARTS = 3.0, 2
# weighing walks all pages of each process, 5 ms per GiB, so a large job is weighed less often
WEIGH_S = 1.5


def watch(*, pid: int, seconds: float = 20.0, progress: Progress = SILENT) -> Watch:
    """Look at the job of `pid` for `seconds`, without stopping it; Ctrl+C ends the look early and keeps what it saw.

    GpudocError if there is no such process or none of its processes is Python.
    """
    target = choose(pid)
    if target.note:
        progress.say(target.note)
    with TemporaryFolder("watch") as folder:
        looking = Looking(target.pid, folder, seconds)
        try:
            while looking.goes_on():
                looking.look()
                progress.advance(min(looking.elapsed_s, seconds), seconds, f"watching process {target.pid}")
        except KeyboardInterrupt:
            looking.interrupted = True
        return looking.finish()


class Records(Protocol):
    """A running sampler of stacks, which returns what it saw when it is stopped."""

    def finish(self) -> Fact[Stacks]:
        """Stop sampling and read the stacks."""


@dataclass(slots=True)
class Looking:
    """A watch under way: all samplers of one job, driven by one clock.

    `clear` names the cause that a watch shows beyond doubt, '' if there is none. It is applied to short looks, and two
    in a row with the same cause end the watch early: a single look may fall on a pause, or on starting workers.
    """

    pid: int
    folder: pathlib.Path
    seconds: float
    recorder: Records | None = None
    clear: Callable[[Watch], str] | None = None
    interrupted: bool = False
    began: float = field(default_factory=time.monotonic)
    _tree: TreeSampler = field(init=False)
    _limits: LimitsSampler = field(init=False)
    _gpus: GpuRecorder = field(init=False)
    _program: Fact[str] = field(init=False)
    _dumper: _Dumper | None = field(init=False, default=None)
    _close_up: CloseUp | None = field(init=False, default=None)
    _part: spy.Recorder | None = field(init=False, default=None)
    _named: list[str] = field(init=False, default_factory=list)
    _command: str = field(init=False)
    _directory: Fact[str] = field(init=False)
    _next: dict[str, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._tree = TreeSampler(self.pid)
        self._limits = LimitsSampler(self.pid)
        self._gpus = GpuRecorder(self.folder / "gpus.jsonl")
        self._program = spy.find()
        if isinstance(self._program, str):
            if self.recorder is None:
                self.recorder = spy.Recorder(self._program, self.pid, self.folder / "stacks.json", self.seconds + 5)
            self._dumper = _Dumper(self._program, self.pid, self.folder)
        self._command = " ".join(read_words(self.pid))[:300]
        self._directory = directory_of(self.pid)
        self._tree.measure()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the watch began."""
        return time.monotonic() - self.began

    def goes_on(self) -> bool:
        """Whether there is time left, the job still runs, and nothing is clear yet."""
        return self.elapsed_s < self.seconds and self._tree.is_alive() and not self._is_clear

    def look(self) -> None:
        """Sleep until the next sample is due, then run each sampler whose interval has passed."""
        time.sleep(max(0.0, self._next.get("glance", 0.0) - self.elapsed_s))
        self._timed("glance", GLANCE_S, self._tree.glance)
        self._timed("measure", MEASURE_S, self._tree.measure)
        self._timed("weigh", WEIGH_S, self._tree.weigh)
        if self._dumper is not None and self._due("dump", DUMP_S):
            self._dumper.look(self.elapsed_s)
        self._look_closely()
        self._look_briefly()

    def finish(self) -> Watch:
        """Stop every sampler and put together what was seen."""
        # the counters first: stopping the samplers takes a while
        seen = self._so_far(self._program if isinstance(self._program, Absent) else Absent("not recorded"))
        if self._part is not None:
            self._part.finish()
        if self.recorder is not None:
            seen = dataclasses.replace(seen, stacks=self._with_lines(self.recorder.finish()))
        if self._close_up is not None:
            closely = self._with_lines(self._close_up.finish())
            handed = handoff.measure() if not seen.ended else seen.handoff
            seen = dataclasses.replace(seen, close_up=closely, handoff=handed)
        glances = seen.glances if self._dumper is None else self._dumper.finish()
        return dataclasses.replace(seen, glances=glances, gpus=self._gpus.finish())

    def _so_far(self, stacks: Fact[Stacks]) -> Watch:
        """What was seen until now, with these stacks; no sampler stops for it."""
        self._tree.measure()
        return Watch(
            pid=self.pid,
            seconds=self.elapsed_s,
            stacks=self._with_lines(stacks),
            close_up=Absent("not taken"),
            handoff=Absent("not examined"),
            glances=Absent("py-spy is not installed") if self._dumper is None else self._dumper.seen,
            processes=self._tree.tracks(),
            limits=self._limits.finish(),
            gpus=self._gpus.read(),
            interrupted=self.interrupted,
            ended=not self._tree.is_alive(),
            command=self._command,
            directory=self._directory,
        )

    @property
    def _is_clear(self) -> bool:
        last = self._named[-SAME_PARTS:]
        return len(last) == SAME_PARTS and bool(last[0]) and len(set(last)) == 1

    def _with_lines(self, stacks: Fact[Stacks]) -> Fact[Stacks]:
        if isinstance(stacks, Absent):
            return stacks
        lines, kept = read_lines(self.pid, stacks.frames)
        return dataclasses.replace(stacks, lines=lines, accumulations=kept)

    def _look_closely(self) -> None:
        """Start the close-up, once, if the length of a step matters: for a job without loader workers."""
        begins = CLOSE_UP_AFTER_S <= self.elapsed_s <= self.seconds - SECONDS
        if not begins or self._close_up is not None or not isinstance(self._program, str):
            return
        pid = self._tree.lone_trainer()
        if pid is not None:
            self._close_up = CloseUp(self._program, pid, self.folder)

    def _look_briefly(self) -> None:
        """Record a few seconds in parallel, again and again, and check whether they show a clear cause."""
        if self.clear is None or not isinstance(self._program, str):
            return
        if self._part is None:
            place = self.folder / f"part-{len(self._named)}.json"
            self._part = spy.Recorder(self._program, self.pid, place, PART_S)
        elif self._part.is_done:
            stacks, self._part = self._part.finish(), None
            if isinstance(stacks, Absent):
                # only an ancestor of the job may look, or the job is just ending
                self.clear = None
                return
            self._named.append(self.clear(self._so_far(stacks)))

    def _timed(self, name: str, every_s: float, action: Callable[[], None]) -> None:
        if not self._due(name, every_s):
            return
        began = time.thread_time()
        action()
        # a job of hundreds of processes is sampled less often, so that sampling stays below 5 % of one CPU
        self._next[name] = max(self._next[name], self.elapsed_s + 20 * (time.thread_time() - began))

    def _due(self, name: str, every_s: float) -> bool:
        if self.elapsed_s < self._next.get(name, 0.0):
            return False
        self._next[name] = self.elapsed_s + every_s
        return True


class _Dumper:
    """Looks with `py-spy dump`, one at a time and without waiting: only these show the interpreter's lock."""

    def __init__(self, program: str, pid: int, folder: pathlib.Path) -> None:
        self._command = spy.dump_command(program, pid)
        self._pid = pid
        self._output = folder / "dump.json"
        self._running: subprocess.Popen[bytes] | None = None
        self._asked_s = 0.0
        self._seen: list[Glance] = []
        self._refused = ""

    def look(self, now_s: float) -> None:
        """Collect the last look if it is done, and begin another."""
        if self._running is not None and self._running.poll() is None:
            return
        self._collect()
        with self._output.open("wb") as output, self._output.with_suffix(".err").open("wb") as errors:
            self._running = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
            )
        self._asked_s = now_s

    def finish(self) -> Fact[tuple[Glance, ...]]:
        """All looks; absent with the reason if every look was refused."""
        if self._running is not None:
            end_process(self._running, grace_s=2.0)
            self._collect()
        return self.seen

    @property
    def seen(self) -> Fact[tuple[Glance, ...]]:
        return tuple(self._seen) if self._seen else Absent(self._refused or "no sample succeeded")

    def _collect(self) -> None:
        if self._running is None:
            return
        if self._running.returncode == 0:
            self._seen += spy.parse_dump(self._output.read_text("utf-8", "replace"), self._asked_s)
        else:
            self._refused = spy.explain_refusal(
                self._output.with_suffix(".err").read_text("utf-8", "replace"), self._pid
            )
        self._running = None
