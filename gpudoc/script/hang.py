"""Whether a running command hangs: train's watch over ranks, fed by the command's signs of life."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from gpudoc.process.stacks import little_stacks

if TYPE_CHECKING:
    from gpudoc.train.events import Hung
    from gpudoc.train.ranks.pulse import Beat
    from gpudoc.train.watch.hang import Stand
    from gpudoc.train.watch.watch import RankWatch

_LOOK_S = 1.0
_CLOSE_S = 2.0
# frames that write large data; if the file is mapped, the bytes that such a process moves are not counted
_SAVES = ("/torch/serialization.py", "/torch/distributed/checkpoint/", "/safetensors/")


class HangWatch:
    """Looks in a separate thread, because a look into a process may take seconds; begins when the first rank appears.

    `over` are the hangs that ended by themselves; `ended_for` is the hang for which the command must be ended.
    """

    def __init__(self, folder: Path, on_hang: str) -> None:
        self.over: list[Hung] = []
        self.ended_for: Hung | None = None
        self._folder = folder
        self._on_hang = on_hang
        self._said: SimpleQueue[str] = SimpleQueue()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def said(self) -> list[str]:
        """The new lines to print since the last call; also starts the thread once a rank has appeared."""
        if self._thread is None and not self._closed.is_set() and any(self._folder.glob("rank-*")):
            self._thread = threading.Thread(target=self._run, name="gpudoc-standing", daemon=True)
            with little_stacks(1 << 20):
                self._thread.start()
        lines: list[str] = []
        while True:
            try:
                lines += self._said.get_nowait().splitlines()
            except Empty:
                return lines

    def close(self) -> None:
        """Stop looking; waits at most two seconds for a look under way."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def watch(self, clock: Callable[[], float] = time.monotonic) -> RankWatch:
        """The watch over the command's ranks."""
        # these imports take a tenth of a second, which a command without training does not need
        from gpudoc.train.watch.watch import RankWatch

        return RankWatch(
            beats=lambda: living(self._folder),
            stands=look_at,
            say=self._said.put,
            record=self.over.append,
            seen=lambda: gone(self._folder),
            patience_s=Patience(clock),
            on_hang=self._on_hang,
            clock=clock,
        )

    def _run(self) -> None:
        watch = self.watch()
        while not self._closed.wait(_LOOK_S):
            if watch.look():
                self.ended_for = watch.hung
                return


def living(folder: Path) -> list[Beat]:
    """The positions of the ranks whose processes have not ended."""
    from gpudoc.train.ranks.pulse import read_beats

    return [beat for beat in read_beats(folder) if _lives(beat.pid)]


def gone(folder: Path) -> tuple[str, ...]:
    """The line about ranks that ended while other ranks still run and may wait for them; empty if there are none."""
    from gpudoc.train.ranks.pulse import ENDED, read_beats

    beats = read_beats(folder)
    alive = {beat.rank for beat in beats if beat.doing != ENDED and _lives(beat.pid)}
    ended = {beat.rank: beat for beat in beats if beat.rank not in alive and beat.world > 1}
    told = [f"rank {rank} of {beat.world} has ended after step {beat.step}" for rank, beat in sorted(ended.items())]
    return ("; ".join(told[:4]),) if told else ()


def look_at(beats: Sequence[Beat]) -> list[Stand]:
    """The positions of the ranks, with the collective on each rank's stack, since a script's own are not counted."""
    from gpudoc.train.watch.stacks import stands_of

    return [_in_its_call(stand) for stand in stands_of(beats)]


class Patience:
    """How long ranks may stay as they are: work between the steps, such as an evaluation, gives no signs of life.

    For ever while any stack changes from look to look; for minutes if no stack changes but a rank computes, saves or
    compiles; not at all if a rank neither computes nor moves bytes nor waits for other ranks.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        from gpudoc.facts.live.stillness import Stillness

        self._clock = clock
        self._ranks: dict[int, Stillness] = {}

    def __call__(self, stands: Sequence[Stand]) -> float:
        """Look at the ranks once more; the seconds for which they may stay as they are."""
        from gpudoc.facts.live.stillness import Stillness, look
        from gpudoc.facts.live.tree import descendants
        from gpudoc.facts.process import Glance
        from gpudoc.train.watch.watch import FIRST_S, first_step_s

        idle, moved = [], False
        for stand in stands:
            pid, now = stand.beat.pid, self._clock()
            stillness = self._ranks.setdefault(pid, Stillness(with_stacks=bool(stand.frames)))
            glance = Glance(time_s=now, pid=pid, frames=stand.frames, active=False, holds_gil=False)
            stillness.takes(look(now, descendants(pid), [glance]))
            seen = stillness.seen
            if seen is None or len(seen.looks) < 2:
                moved = True
            elif seen.is_idle:
                idle.append(stand)
        if moved:
            return float("inf")
        if first_step_s(stands) or any(sign in frame.file for s in stands for frame in s.frames for sign in _SAVES):
            return FIRST_S
        is_held = any(stand.is_stopped or not stand.beat.call for stand in idle)
        return 0.0 if is_held or len(idle) == len(stands) else FIRST_S


def _in_its_call(stand: Stand) -> Stand:
    """The same position with the collective that it waits in, if the frames below the user's own show one.

    Its progress is counted in batches and steps: other ranks wait for the rank with fewer of them.
    """
    from gpudoc.facts.process import last_own

    call = ""
    for frame in reversed(stand.frames if stand.beat.world > 1 else ()):
        if last_own([(frame.file, frame.line)]):
            break
        if "/torch/autograd/" in frame.file:
            call = "backward()"
        elif ("/torch/distributed/" in frame.file or "/nn/parallel/" in frame.file) and frame.function != "wrapper":
            call = f"{frame.function}()"
    return replace(stand, beat=replace(stand.beat, calls=stand.beat.beats, call=call))


def _lives(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
