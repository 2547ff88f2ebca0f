"""The stacks of ranks and of their loader workers at one moment: py-spy from outside, the interpreter from inside."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Sequence

import psutil

from gpudoc.facts.live import spy
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Frame
from gpudoc.process.ending import end_process
from gpudoc.train.ranks.pulse import Beat
from gpudoc.train.watch.hang import Stand, users_frame

# for all of them together, on a machine that may be busy
_LOOK_S = 20.0
# py-spy does not stop the process: a look may fail because the stack of a computing process moves meanwhile
_TRIES = 6


def stands_of(beats: Sequence[Beat]) -> list[Stand]:
    """Where the ranks stand that this process, or a child of it, has started."""
    frames = _looks([beat.pid for beat in beats])
    return [_stand(beat, frames.get(beat.pid, ())) for beat in beats]


def stand_here(beats: Sequence[Beat]) -> list[Stand]:
    """Where this process's main thread stands, seen from another of its threads."""
    frames: list[Frame] = []
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        frames.append(Frame(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return [_stand(beat, tuple(reversed(frames))) for beat in beats]


def _stand(beat: Beat, frames: tuple[Frame, ...]) -> Stand:
    is_stopped, children = False, list[int]()
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(beat.pid)
        is_stopped = process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        children = [child.pid for child in process.children()]
    # a loader worker matters only if its process waits for it
    look = not beat.call and users_frame(frames) is None
    workers = tuple(_looks(children).values()) if look else ()
    return Stand(beat=beat, is_stopped=is_stopped, frames=frames, workers=workers)


def _looks(pids: Sequence[int]) -> dict[int, tuple[Frame, ...]]:
    """The stack of each process's main thread, without those that py-spy cannot or may not read."""
    program = spy.find()
    found: dict[int, tuple[Frame, ...]] = {}
    if isinstance(program, Absent):
        return found
    for _ in range(_TRIES):
        found |= _look(program, [pid for pid in pids if not found.get(pid)])
    return found


def _look(program: str, pids: Sequence[int]) -> dict[int, tuple[Frame, ...]]:
    """One look at each process, all at once, so that a slow one does not delay the others."""
    running = [
        subprocess.Popen(
            spy.dump_command(program, pid), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        for pid in pids
    ]
    found: dict[int, tuple[Frame, ...]] = {}
    for process in running:
        try:
            text, _ = process.communicate(timeout=_LOOK_S)
        except subprocess.TimeoutExpired:
            end_process(process)
            continue
        found.update({glance.pid: glance.frames for glance in spy.parse_dump(text.decode("utf-8", "replace"), 0.0)})
    return found
