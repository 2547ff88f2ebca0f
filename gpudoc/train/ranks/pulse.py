"""Signs of life: where a rank stands, in a few words of memory that a watcher can read while it runs."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import MutableSequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter as clock
from typing import cast

# names the folder in which the ranks of one machine keep them
FOLDER = "GPUDOC_PULSE_FOLDER"
# begins the names of the files in which ranks of one machine meet; not set where they meet at a port
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
    # a script, of which no more is known
    "runs its own code",
)
VOTE, TOTAL, GATHER, BROADCAST, REDUCE, WORST = range(1, 7)
CALLS = ("", "vote", "sum on the host", "gather", "broadcast", "reduction of gradients", "largest gradient check")

_VERSION = 1
_WORDS = 16
# a word each; PID is the last one to be written
_IS, _PID, _RANK, _WORLD, _STEP, _DOING, _BEATS, _CALLS, _CALL = range(9)
_RUN = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Where a rank stands: `calls` counts the collectives that it came to, `call` names the one that it is in, or ''.

    Two equal beats mean that nothing has moved in between.
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
        """What it does, as the end of a sentence about a rank."""
        return DOES[self.doing]


class Pulse:
    """One rank's signs of life. Each is a number stored in memory: nothing waits, nothing is sent.

    `waited_s` are the seconds in collectives so far; `own_s` and `read_s` are those of steps without them, in all and
    while samples were read, since `take`.
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
        """Step number `step`, from 0, begins with reading its samples."""
        self._words[_STEP] = step
        self._words[_DOING] = READING

    def now(self, doing: int) -> None:
        """Something else begins, or the same goes on with the next part: each call is a sign of life."""
        self._words[_DOING] = doing
        self._words[_BEATS] += 1

    def enter(self, call: int) -> None:
        """A collective begins."""
        self._entered = clock()
        self._words[_CALLS] += 1
        self._words[_CALL] = call

    def leave(self) -> None:
        """The collective is over."""
        self._words[_CALL] = 0
        self.waited_s += clock() - self._entered

    def take(self) -> tuple[float, float]:
        """`own_s` and `read_s`, which start again at 0."""
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
    """This rank's signs of life, where the process that started it reads them; else in its own memory."""
    pulse = Pulse()
    folder = os.environ.get(FOLDER)
    if folder:
        with contextlib.suppress(OSError, ValueError):
            pulse = _shared(Path(folder), rank)
    pulse.belong(rank, world)
    return pulse


def _shared(folder: Path, rank: int) -> Pulse:
    place = folder / f"rank-{rank}"
    # a rank that is started again must not write over one that still lives
    with contextlib.suppress(FileNotFoundError):
        place.unlink()
    with place.open("w+b") as file:
        # written, not only made longer: to store into a page for which the disk has no room is a SIGBUS
        file.write(bytes(_WORDS * 8))
        file.flush()
        memory = mmap.mmap(file.fileno(), _WORDS * 8)
    words = cast("MutableSequence[int]", memoryview(memory).cast("q"))
    return Pulse(words, folder)


def read_beats(folder: Path) -> list[Beat]:
    """Where the ranks of this machine stand, in their order; those that have written nothing yet are left out."""
    found = []
    for place in folder.glob("rank-*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = memoryview(place.read_bytes()).cast("q")
            if words[_IS] == _VERSION and words[_PID]:
                found.append(_beat(words))
    return sorted(found, key=lambda beat: beat.rank)


def run_folder(folder: Path) -> Path | None:
    """The folder of the run, once a rank has named it."""
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
