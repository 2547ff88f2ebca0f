"""The watcher: the process that started the ranks; for a single process, a separate thread."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import psutil

from gpudoc.control_characters import escape_controls
from gpudoc.errors import ExitCode, GpudocError
from gpudoc.process.stacks import little_stacks
from gpudoc.train.events import Event, Hung, Progressed, Said
from gpudoc.train.ranks.pulse import ENDED, FOLDER, Beat, Pulse, read_beats, run_folder
from gpudoc.train.stop import Stop
from gpudoc.train.watch import recorder
from gpudoc.train.watch.stacks import stand_here, stands_of
from gpudoc.train.watch.watch import LOOK_S, RankWatch

if TYPE_CHECKING:
    # a process that only starts ranks and watches them need not import torch
    from gpudoc.train.job import Job

# a process that must end may save its state as long as it makes progress
GRACE_S = 30.0
# a thread of Python's default size would count 8 MiB against a memory limit
_STACK_BYTES = 1 << 20
_HANGS = "hangs.jsonl"


class HungError(GpudocError):
    """The run made no progress for so long that it was ended, as --on-hang end asks."""


def hung_error(hung: Hung, command: str = "") -> HungError:
    """The error that ends a run after a hang; `command` continues the run."""
    return HungError(f"--on-hang end: {hung.say}", hint=command, exit_code=ExitCode.BAD_ANSWER)


def speak(text: str) -> None:
    """Print `text` on stderr, above a live screen if this process has one."""
    sys.stderr.write("".join(f"gpudoc: {line}\n" for line in escape_controls(text).splitlines()))
    sys.stderr.flush()


def watch_ranks(folder: Path, environment: Mapping[str, str], on_hang: str) -> RankWatch:
    """The watch over ranks that this process started with `environment`."""

    def beats() -> list[Beat]:
        # beats of an earlier attempt stay until the same rank of the next attempt has begun
        return [beat for beat in read_beats(folder) if psutil.pid_exists(beat.pid)]

    def record(hung: Hung) -> None:
        with contextlib.suppress(OSError), (folder / _HANGS).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(hung.document()) + "\n")

    return RankWatch(
        beats=beats,
        stands=stands_of,
        say=speak,
        record=record,
        seen=lambda: recorder.ask(environment, [beat.rank for beat in beats()]),
        on_hang=on_hang,
    )


def ended(folder: Path, hung: Hung, go_on: Callable[[Path], str]) -> HungError:
    """The error with which the process that started the ranks ends, with the command that continues the run."""
    run = run_folder(folder)
    return hung_error(hung, "" if run is None else go_on(run))


class Hangs:
    """The hangs of this process's run that are over, or that ended it."""

    def __init__(self, folder: Path | None = None) -> None:
        self.own: list[Hung] = []
        self._folder = folder
        self._num_told = 0

    def tell(self, job: Job) -> Iterator[Hung]:
        """Yield the hangs not reported yet, and write them into the run's metrics and summary."""
        found = self.own if self._folder is None else _kept(self._folder)
        for hung in found[self._num_told :]:
            self._num_told += 1
            job.hangs.append(hung.document())
            job.sinks.add(hung.document())
            yield hung


def events_of(job: Job, hangs: Hangs) -> Iterator[Event]:
    """The events of the loop, with hangs that are over and with slow ranks, each reported once."""
    named: set[int] = set()
    for event in job.loop.events():
        yield event
        if isinstance(event, Progressed) and event.slow is not None and event.slow.rank not in named:
            named.add(event.slow.rank)
            yield Said(event.slow.say(), warning=True)
        yield from hangs.tell(job)
        yield from (Said(text, warning=True) for text in job.sinks.tell())


@contextlib.contextmanager
def watching(job: Job, on_hang: str) -> Iterator[Hangs]:
    """Have the run watched inside: by the process that started this rank, else by a thread."""
    pulse, folder = job.stepper.parts.ranks.pulse, os.environ.get(FOLDER)
    pulse.name_run(job.run.path)
    try:
        if folder:
            yield Hangs(Path(folder))
        else:
            hangs = Hangs()
            with _Thread(pulse, hangs, on_hang, job.stop):
                yield hangs
    finally:
        pulse.now(ENDED)


class _Thread:
    """Looks at this process's own signs of life. Ends the run by an exception in the main thread, so that its state
    is saved; if the exception does not get through, the process ends immediately."""

    def __init__(self, pulse: Pulse, hangs: Hangs, on_hang: str, stop: Stop) -> None:
        self._hangs = hangs
        self._stop = stop
        self._over = threading.Event()
        self._watch = RankWatch(
            beats=lambda: [pulse.beat()],
            stands=stand_here,
            say=speak,
            record=hangs.own.append,
            on_hang=on_hang,
        )
        self._before: object = None
        self._thread = threading.Thread(target=self._run, name="gpudoc-watch", daemon=True)

    def __enter__(self) -> None:
        if hasattr(signal, "SIGALRM"):
            self._before = signal.signal(signal.SIGALRM, self._raise)
        with little_stacks(_STACK_BYTES):
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        # it may be looking with py-spy; do not wait for that
        self._thread.join(timeout=2.0)
        if hasattr(signal, "SIGALRM"):
            signal.signal(signal.SIGALRM, self._before or signal.SIG_DFL)  # type: ignore[arg-type]

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            if self._watch.look():
                self._end()
                return

    def _end(self) -> None:
        hung = self._watch.hung
        assert hung is not None
        self._hangs.own.append(hung)
        # the user's own code may have taken the signal for itself
        if hasattr(signal, "SIGALRM") and signal.getsignal(signal.SIGALRM) == self._raise:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            stood = [*self._watch.beats()]
            while not self._over.wait(GRACE_S):
                if [*self._watch.beats()] == stood:
                    break
                stood = [*self._watch.beats()]
            else:
                return
        speak(f"{hung_error(hung).message}; the last checkpoint is kept. {self._stop.last_words}")
        os._exit(ExitCode.BAD_ANSWER)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._watch.hung is not None:
            raise hung_error(self._watch.hung)


def _kept(folder: Path) -> list[Hung]:
    try:
        lines = (folder / _HANGS).read_text("utf-8").splitlines()
    except OSError:
        return []
    return [_read(json.loads(line)) for line in lines]


def _read(row: Mapping[str, Any]) -> Hung:
    told = row["hang"]
    return Hung(
        step=row["step"],
        still_s=told["still_s"],
        usual_s=told["usual_s"],
        ranks=tuple(told["ranks"]),
        call=told["call"],
        at=told["at"],
        say=told["say"],
        stacks=tuple(told["stacks"]),
    )
