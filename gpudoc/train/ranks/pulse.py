"""Signs of life: the position of a rank, in a few words of memory that a watcher can read while it runs."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import MutableSequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter as clock
from typing import cast

# the variable with the folder in which the ranks of one machine keep them
FOLDER = "GPUDOC_PULSE_FOLDER"
# the variable with the first part of the names of the files in which ranks of one machine meet; unset with a port
MEETING = "GPUDOC_MEETING"
BUILDING, READING, COMPUTING, LOGGING, EVALUATING, SAVING, ENDED, OWN_CODE = range(8)
DOES = (
    "builds the model and its data",
    "reads its samples",
    "computes the step",
    "waits for its device",
    "evaluates",
    "saves a checkpoint",
    "has ended",
    # a script, about which nothing more is known
    "runs its own code",
)
VOTE, TOTAL, GATHER, BROADCAST, REDUCE, WORST = range(1, 7)
CALLS = ("", "vote", "sum on the host", "gather", "broadcast", "reduction of gradients", "largest gradient check")

_VERSION = 1
_WORDS = 16
# one word each; PID is written last
_IS, _PID, _RANK, _WORLD, _STEP, _DOING, _BEATS, _CALLS, _CALL = range(9)
_RUN = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Where a rank stands: `calls` counts the collectives that it has entered, `call` names the current one, or ''.

    Two equal beats mean that the rank made no progress in between.
    """

    rank: int
    world: int
    pid: int
    step: int
    doing: int
    beats: int
    calls: int
    call: str

    @property
    def does(self) -> str:
        """Its activity, as the end of a sentence about a rank."""
        return DOES[self.doing]


class Pulse:
    """One rank's signs of life. Each is a number stored in memory, without waiting or sending.

    `waited_s` are the seconds in collectives so far; `own_s` are the seconds of steps outside collectives since `take`,
    `read_s` the part of them spent reading samples.
    """

    __slots__ = ("_entered", "_place", "_words", "own_s", "read_s", "waited_s")

    def __init__(self, words: MutableSequence[int] | None = None, place: Path | None = None) -> None:
        self._words: MutableSequence[int] = [0] * _WORDS if words is None else words
        self._place = place
        self._entered = 0.0
        self.waited_s = self.own_s = self.read_s = 0.0
        self._words[_IS] = _VERSION

    def belong(self, rank: int, world: int) -> None:
        """Store the rank, the world size and this process's number, which makes them readable."""
        self._words[_RANK], self._words[_WORLD], self._words[_PID] = rank, world, os.getpid()

    def begin(self, step: int) -> None:
        """Note that step number `step`, from 0, begins with reading its samples."""
        self._words[_STEP] = step
        self._words[_DOING] = READING

    def now(self, doing: int) -> None:
        """Note that another activity begins, or the next part of the same one: each call is a sign of life."""
        self._words[_DOING] = doing
        self._words[_BEATS] += 1

    def enter(self, call: int) -> None:
        """Note that a collective begins."""
        self._entered = clock()
        self._words[_CALLS] += 1
        self._words[_CALL] = call

    def leave(self) -> None:
        """Note that the collective is over."""
        self._words[_CALL] = 0
        self.waited_s += clock() - self._entered

    def take(self) -> tuple[float, float]:
        """Return `own_s` and `read_s`, and reset them to 0."""
        taken = self.own_s, self.read_s
        self.own_s = self.read_s = 0.0
        return taken

    def beat(self) -> Beat:
        """Where this rank stands."""
        return _beat(self._words)

    def name_run(self, folder: Path) -> None:
        """Write down the run's folder for a watcher."""
        if self._place is not None:
            with contextlib.suppress(OSError):
                (self._place / _RUN).write_text(str(folder), "utf-8")


def open_pulse(rank: int, world: int) -> Pulse:
    """This rank's signs of life, shared with the process that started it if possible; else in its own memory."""
    pulse = Pulse()
    folder = os.environ.get(FOLDER)
    if folder:
        with contextlib.suppress(OSError, ValueError):
            pulse = _shared(Path(folder), rank)
    pulse.belong(rank, world)
    return pulse


def _shared(folder: Path, rank: int) -> Pulse:
    place = folder / f"rank-{rank}"
    # a restarted rank must not overwrite the file of one that is still alive
    with contextlib.suppress(FileNotFoundError):
        place.unlink()
    with place.open("w+b") as file:
        # write the file, do not only extend it: a store into a page without disk space causes a SIGBUS
        file.write(bytes(_WORDS * 8))
        file.flush()
        memory = mmap.mmap(file.fileno(), _WORDS * 8)
    words = cast("MutableSequence[int]", memoryview(memory).cast("q"))
    return Pulse(words, folder)


def read_beats(folder: Path) -> list[Beat]:
    """Where the ranks of this machine stand, in their order, without ranks that have written nothing yet."""
    found = []
    for place in folder.glob("rank-*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = memoryview(place.read_bytes()).cast("q")
            if words[_IS] == _VERSION and words[_PID]:
                found.append(_beat(words))
    return sorted(found, key=lambda beat: beat.rank)


def run_folder(folder: Path) -> Path | None:
    """The folder of the run, None until a rank has named it."""
    try:
        return Path((folder / _RUN).read_text("utf-8"))
    except OSError:
        return None


def _beat(words: MutableSequence[int] | memoryview[int]) -> Beat:
    return Beat(
        rank=words[_RANK],
        world=words[_WORLD],
        pid=words[_PID],
        step=words[_STEP],
        doing=words[_DOING],
        beats=words[_BEATS],
        calls=words[_CALLS],
        call=CALLS[words[_CALL]],
    )
