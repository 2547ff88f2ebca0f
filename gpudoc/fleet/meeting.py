"""Communication between the processes of a fleet: plain JSON in one store, and every wait has a deadline."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.fleet.place import LOOPBACK, EnginePlace
from gpudoc.process.seal import Seal, SealError

# enough for srun to start a thousand tasks, and for the first import of torch from a slow file system
JOIN_S = 180.0
# a process is considered dead if its beat is not heard for this long
SILENCE_S = 30.0
_BEAT_S, _PAUSE_S = 1.0, 0.05
_LAST_BEAT_S = 10.0
# the ranks together may query the store at most this often
_MOST_QUESTIONS_PER_S = 4000.0
# the children, one per GPU, may connect at the same moment
_ALSO_CONNECTED = 64

Message = Mapping[str, object]


class Store(Protocol):
    """The methods of torch's store that are used here."""

    def set(self, key: str, value: str) -> None:
        """Keep a value."""

    def get(self, key: str) -> bytes:
        """The value of a key that is there."""

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are there."""


class LeaderLostError(GpudocError):
    """Rank 0 is gone, so this process has no one to measure for."""


@dataclass(slots=True)
class Heard:
    """The last beat of one process, and its time."""

    beat: bytes = b""
    at_s: float = field(default_factory=time.monotonic)


class Meeting:
    """One process's access to the store. It does not trust messages: it reports those that are not JSON and, with
    a `seal`, those that no process of this run has signed.
    """

    def __init__(self, store: Store, place: EnginePlace, seal: Seal | None = None) -> None:
        self.store = store
        self.place = place
        self._seal = seal
        self._heard: dict[int, Heard] = {}
        self._ended = threading.Event()
        self._beating: threading.Thread | None = None
        self._pause_s = max(_PAUSE_S, place.world / _MOST_QUESTIONS_PER_S)

    def begin(self) -> None:
        """Beat from now on, in a thread, so that others know this process lives while it measures."""
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    def end(self) -> None:
        """Stop beating. A thread that is inside the store when Python ends would abort the process."""
        self._ended.set()
        if self._beating is not None:
            self._beating.join(_LAST_BEAT_S)

    def _beat(self) -> None:
        count = 0
        while not self._ended.wait(_BEAT_S if count else 0):
            count += 1
            try:
                self.store.set(f"beat/{self.place.rank}", str(count))
            except RuntimeError:
                return

    def say(self, key: str, message: Message) -> None:
        """Leave a message; LeaderLostError if the store is gone."""
        text = json.dumps(message)
        with _reaching():
            self.store.set(key, text if self._seal is None else self._seal.sign(key, text.encode()).decode())

    def read(self, key: str) -> Message | str | None:
        """The message at `key`, None while there is none; a text gives the reason if it cannot be read."""
        with _reaching():
            if not self.store.check([key]):
                return None
            raw = self.store.get(key)
        try:
            message = json.loads(raw if self._seal is None else self._seal.open(key, raw))
        except SealError as problem:
            return str(problem)
        except ValueError as problem:
            return f"{len(raw)} bytes that are not JSON: {problem}"
        return message if isinstance(message, dict) else f"no object but {type(message).__name__}"

    def lives(self, rank: int) -> bool:
        """Whether a process's beat was heard within SILENCE_S; a process that has not begun yet gets the same time."""
        heard = self._heard.setdefault(rank, Heard())
        with _reaching():
            beat = self.store.get(f"beat/{rank}") if self.store.check([f"beat/{rank}"]) else b""
        if beat != heard.beat:
            heard.beat, heard.at_s = beat, time.monotonic()
        return time.monotonic() - heard.at_s <= SILENCE_S

    def gather(self, keys: Mapping[int, str], seconds: float, tick: Callable[[int], None]) -> dict[int, Message | str]:
        """The message that each rank left at `key/RANK` within `seconds`; silent ranks are absent.

        The wait ends early for a rank whose beat has stopped. `tick` gets the number of ranks still awaited.
        """
        told: dict[int, Message | str] = {}
        awaited = dict(keys)
        until = time.monotonic() + seconds
        while awaited:
            for rank, key in list(awaited.items()):
                # check its beat first: it may send its last message between the two checks
                is_over = time.monotonic() > until or not self.lives(rank)
                message = self.read(f"{key}/{rank}")
                if message is not None:
                    told[rank] = message
                if message is not None or is_over:
                    del awaited[rank]
            tick(len(awaited))
            if awaited:
                time.sleep(self._pause_s)
        return told

    def await_order(self, number: int, rank: int) -> Message | None:
        """Rank 0's order of that number for this rank, None at the end; LeaderLostError if rank 0 falls silent."""
        while True:
            message = self.read(f"order/{number}/{rank}")
            if isinstance(message, dict):
                return message
            if self.is_over():
                return None
            time.sleep(self._pause_s)

    def is_over(self) -> bool:
        """Whether rank 0 has announced the end; LeaderLostError if it has not been heard for SILENCE_S."""
        if isinstance(self.read("end"), dict):
            return True
        if not self.lives(0):
            raise LeaderLostError(
                f"rank 0 has not been heard for {SILENCE_S:.0f} s",
                hint="its message says why",
                exit_code=ExitCode.BAD_ANSWER,
            )
        return False


class _reaching:  # noqa: N801
    """Translates errors of the store: the process that keeps it is gone."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if isinstance(problem, RuntimeError):
            raise LeaderLostError(
                f"the process that runs the store has ended: {str(problem).splitlines()[0][:200]}",
                hint="the message of rank 0 says why",
                exit_code=ExitCode.BAD_ANSWER,
            ) from problem


def open_store(place: EnginePlace) -> tuple[Store, int]:
    """The store of this run and its port; GpudocError if no answer comes within JOIN_S."""
    # a store that has lost its other end prints forty lines; gpudoc's own message is enough
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        from torch._C._distributed_c10d import PrefixStore, TCPStore

        listener = _listen_on_loopback(place)
        store = TCPStore(
            place.address,
            place.port if listener is None else listener.getsockname()[1],
            is_master=place.rank == 0 and not place.agent_store,
            timeout=timedelta(seconds=JOIN_S),
            wait_for_workers=False,
            multi_tenant=place.agent_store,
            master_listen_fd=None if listener is None else listener.detach(),
        )
        return PrefixStore(f"gpudoc/across/{place.attempt}", store), int(store.port)
    except _PortTakenError as problem:
        raise _port_is_taken(place) from problem
    except (ImportError, OSError) as problem:
        raise GpudocError(
            f"torch cannot be imported here: {str(problem).splitlines()[0]}",
            hint="gpudoc doctor",
            exit_code=ExitCode.BAD_ANSWER,
        ) from problem
    except RuntimeError as problem:
        where = f"{place.address}:{place.port}"
        text = str(problem).splitlines()[0]
        if "EADDRINUSE" in text or "in use" in text:
            raise _port_is_taken(place) from problem
        raise GpudocError(
            f"rank {place.rank} of {place.world} could not reach rank 0 at {where} within {JOIN_S:.0f} s: {text}",
            hint="is rank 0 running there, and does the firewall allow that port?",
            exit_code=ExitCode.BAD_ANSWER,
        ) from problem


def _listen_on_loopback(place: EnginePlace) -> socket.socket | None:
    """Rank 0's socket if all processes are on this machine, else None; torch's store would listen on every network."""
    if place.address != LOOPBACK or place.rank or place.agent_store:
        return None
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, place.port))
        listener.listen(place.world + _ALSO_CONNECTED)
    except OSError as problem:
        listener.close()
        raise _PortTakenError(str(problem)) from problem
    return listener


class _PortTakenError(Exception):
    """Another process listens there."""


def _port_is_taken(place: EnginePlace) -> GpudocError:
    return GpudocError(f"{place.address}:{place.port}: the port is in use", hint="choose another one: MASTER_PORT=PORT")
