"""Describes a run without progress: the missing ranks, their lines, and the collective in which the others wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudoc.facts.process import OWN_FOLDER, Frame, last_own
from gpudoc.train.events import Hung
from gpudoc.train.ranks.pulse import CALLS, Beat
from gpudoc.units import format_seconds

_MOST_RANKS = 8
_MOST_FRAMES = 4
# gpudoc's code that runs in a user's script, below the user's own frames
_INSIDE = str(Path(OWN_FOLDER) / "script" / "inside")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """Where one rank stands: its signs of life, whether a signal or a debugger holds it, and its stack.

    `frames` are the main thread's, the outermost first, empty if they cannot be read. `workers` are the frames of its
    loader workers.
    """

    beat: Beat
    is_stopped: bool = False
    frames: tuple[Frame, ...] = ()
    workers: tuple[tuple[Frame, ...], ...] = ()

    @property
    def frame(self) -> Frame | None:
        """The user's line at which it stands: its own, else that of a loader worker that it waits for, else that of
        the script that asked for the batch.
        """
        found = (users_frame(frames) for frames in (self.frames, *self.workers, _above_the_inside(self.frames)))
        return next((frame for frame in found if frame), None)


def compiles(stands: Iterable[Stand]) -> bool:
    """Whether any rank compiles a model, which may take minutes at any step with new shapes."""
    # a compiled model that runs has other frames of the same packages
    signs = ("/torch/_inductor/compile_fx.py", "/torch/_dynamo/convert_frame.py", "/triton/compiler/")
    return any(sign in frame.file for stand in stands for frame in stand.frames for sign in signs)


def judge(stands: Sequence[Stand], still_s: float, usual_s: float | None, seen: Sequence[str] = ()) -> Hung:
    """Find the ranks that the others wait for. `seen` are sentences from NCCL's flight recorder."""
    world = stands[0].beat.world
    front = max(stand.beat.calls for stand in stands)
    missing = _missing(stands)
    waiting = [stand for stand in stands if stand not in missing and stand.beat.call]
    usually = f" (a step usually takes {format_seconds(usual_s)})" if usual_s is not None else ""
    at = next((_short(stand.frame) for stand in missing if stand.frame), "")
    if missing:
        what = "; ".join(_what(stand, world) for stand in missing[:_MOST_RANKS])
    elif seen:
        what = seen[0]
    elif waiting and len(stands) == 1:
        what = f"{_what(waiting[0], world)} for a rank that says itself where it stands"
    elif waiting and len(stands) < world:
        what = f"all {len(stands)} ranks of this machine wait for a rank of another machine, which names it"
    elif len({stand.beat.call for stand in waiting}) > 1:
        what = "the ranks are in different collectives: " + "; ".join(_what(stand, world) for stand in waiting[:4])
    else:
        what = "every rank waits, for its device or the network; none is missing"
    calls = sorted({stand.beat.call for stand in waiting})
    call = _collective(front, calls[0]) if calls and missing else ""
    if call:
        what += f"; {_few([stand.beat.rank for stand in waiting])} for it in {call}"
    step = min(stand.beat.step for stand in stands)
    return Hung(
        step=step,
        still_s=still_s,
        usual_s=usual_s,
        ranks=tuple(stand.beat.rank for stand in missing),
        call=call,
        at=at,
        say=f"nothing has moved for {format_seconds(still_s)} in step {step + 1}{usually}: {what}",
        stacks=(*(_stack(stand) for stand in stands[:_MOST_RANKS]), *(line for line in seen if line != what)),
    )


def _missing(stands: Sequence[Stand]) -> list[Stand]:
    """Ranks that are stopped, or outside the collective in which others wait; of these the furthest behind."""
    held = [stand for stand in stands if stand.is_stopped]
    if held:
        return held
    outside = [stand for stand in stands if not stand.beat.call]
    if len(stands) > 1 and len(outside) == len(stands) and len({stand.beat.calls for stand in stands}) == 1:
        # on GPUs each rank may wait for its device, and the devices for each other
        return [stand for stand in stands if stand.frame]
    if outside:
        return [stand for stand in outside if stand.beat.calls == min(other.beat.calls for other in outside)]
    behind = min(stand.beat.calls for stand in stands)
    is_apart = any(stand.beat.calls > behind for stand in stands)
    return [stand for stand in stands if stand.beat.calls == behind] if is_apart else []


def _what(stand: Stand, world: int) -> str:
    beat = stand.beat
    who = f"rank {beat.rank} of {world}" if world > 1 else "the process"
    if stand.is_stopped:
        return f"{who} is stopped by a signal or a debugger (kill -CONT {beat.pid} lets it continue)"
    doing = f"is in {_collective(beat.calls, beat.call)}" if beat.call else beat.does
    at = f" at {_short(stand.frame)}" if stand.frame else ""
    return f"{who} {doing}{at}"


def _stack(stand: Stand) -> str:
    """One line about a rank: where it stands, and its innermost frames."""
    beat = stand.beat
    where = f"in {_collective(beat.calls, beat.call)}" if beat.call else beat.does
    own = next((frames for frames in (stand.frames, *stand.workers) if users_frame(frames)), stand.frames)
    frames = " < ".join(_short(frame) for frame in reversed(own[-_MOST_FRAMES:])) or "its stack could not be read"
    return f"rank {beat.rank} (pid {beat.pid}), step {beat.step + 1}, {where}: {frames}"


def users_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's own code that gpudoc called; None if there is none."""
    # the caller of gpudoc (its console script, a notebook) is not part of the training
    begin = next((number for number, frame in enumerate(frames) if frame.file.startswith(OWN_FOLDER)), 0)
    frames = frames[begin:]
    place = last_own((frame.file, frame.line) for frame in frames)
    return next((frame for frame in reversed(frames) if f"{frame.file}:{frame.line}" == place), None)


def _short(frame: Frame | None) -> str:
    if frame is None:
        return ""
    path = Path(frame.file)
    try:
        shown = str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        shown = "/".join(path.parts[-2:])
    return f"{shown}:{frame.line} in {frame.function}()"


def _above_the_inside(frames: Sequence[Frame]) -> Sequence[Frame]:
    begin = next((number for number, frame in enumerate(frames) if frame.file.startswith(_INSIDE)), 0)
    return frames[:begin]


def _collective(number: int, call: str) -> str:
    # the collectives of a script are not counted
    return f"collective {number} ({call})" if call in CALLS else call


def _few(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_MOST_RANKS])) + (" ..." if len(ranks) > _MOST_RANKS else "")
    return f"rank {shown} waits" if len(ranks) == 1 else f"ranks {shown} wait"
