"""Processes that train together find each other here, before they form one group."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.train.ranks.pulse import MEETING, Pulse, open_pulse

JOIN_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """This process's place among the others, as torchrun or the sbatch file sets it in the environment."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    restarts: int = 0

    @property
    def is_one_node(self) -> bool:
        """Whether all ranks run on this machine."""
        return self.local_world == self.world


def place_here(environment: Mapping[str, str] | None = None) -> Place | None:
    """This process's place; None if it was not started as one of several. GpudocError if the variables disagree."""
    variables = os.environ if environment is None else environment
    if "RANK" not in variables or "WORLD_SIZE" not in variables:
        return None
    try:
        place = Place(
            rank=int(variables["RANK"]),
            world=int(variables["WORLD_SIZE"]),
            local_rank=int(variables.get("LOCAL_RANK", "0")),
            local_world=int(variables.get("LOCAL_WORLD_SIZE", "1")),
            restarts=int(variables.get("TORCHELASTIC_RESTART_COUNT", "0")),
        )
    except ValueError as problem:
        raise GpudocError(f"RANK, WORLD_SIZE or LOCAL_RANK is not a number: {problem}") from None
    if not 0 <= place.rank < place.world or place.local_rank < 0:
        raise GpudocError(f"RANK {place.rank} of WORLD_SIZE {place.world} cannot be", hint="start it with torchrun")
    return place


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """The ranks of this attempt, which have answered each other; only they use `store`."""

    place: Place
    store: Store
    pulse: Pulse


def meet_here() -> Met | None:
    """Meet the ranks that were started with this process; None if it is alone."""
    place = place_here()
    return None if place is None or place.world == 1 else meet_others(place)


def meet_others(place: Place) -> Met:
    """Meet the other ranks; GpudocError if they do not come, or the port is taken."""
    pulse = open_pulse(place.rank, place.world)
    with explained(place):
        return Met(place=place, store=meet(place, _open_store(place)), pulse=pulse)


def meet(place: Place, store: Store) -> Store:
    """A part of `store` that only the ranks of this attempt use.

    A store that the launcher keeps still holds the addresses of killed ranks. So rank 0 gives the attempt
    a new name, and the others ask until a live rank 0 answers them under that name.
    """
    until = time.monotonic() + JOIN_SECONDS
    if place.rank == 0:
        attempt = uuid.uuid4().hex
        store.set("gpudoc/attempt", attempt)
        for other in range(1, place.world):
            greeting = store.get(f"gpudoc/{attempt}/hello/{other}").decode()
            store.set(f"gpudoc/{attempt}/welcome/{other}/{greeting}", "1")
        return PrefixStore(f"gpudoc/{attempt}", store)
    me = uuid.uuid4().hex
    while time.monotonic() < until:
        attempt = store.get("gpudoc/attempt").decode()
        store.set(f"gpudoc/{attempt}/hello/{place.rank}", me)
        for _ in range(20):
            if store.check([f"gpudoc/{attempt}/welcome/{place.rank}/{me}"]):
                return PrefixStore(f"gpudoc/{attempt}", store)
            time.sleep(0.05)
    raise RuntimeError("rank 0 did not answer")


@contextmanager
def explained(place: Place) -> Iterator[None]:
    """Translates torch's errors while ranks meet into a GpudocError."""
    try:
        yield
    except (RuntimeError, ValueError) as problem:
        raise _explain(place, problem) from problem


def _open_store(place: Place) -> Store:
    meeting = os.environ.get(MEETING)
    if meeting and place.is_one_node:
        # one file per attempt: the previous file holds the addresses of dead ranks
        store = FileStore(f"{meeting}-{place.restarts}", place.world)
        store.set_timeout(timedelta(seconds=JOIN_SECONDS))
        return store
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not host or not port.isdecimal():
        raise GpudocError("RANK is set and MASTER_ADDR or MASTER_PORT is not", hint="start it with torchrun")
    kept_by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return TCPStore(
        host,
        int(port),
        place.world,
        is_master=place.rank == 0 and not kept_by_agent,
        timeout=timedelta(seconds=JOIN_SECONDS),
        multi_tenant=True,
    )


def _explain(place: Place, problem: Exception) -> GpudocError:
    text = str(problem).splitlines()[0]
    at_port = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    where = os.environ.get(MEETING) or at_port
    if "EADDRINUSE" in text or "in use" in text:
        hint = "MASTER_PORT=0 lets torchrun choose; or end the other job"
        return GpudocError(f"{where}: the port is in use", hint=hint)
    return GpudocError(
        f"rank {place.rank} of {place.world} could not reach the others at {where} within {JOIN_SECONDS:.0f} s: {text}",
        hint="is every rank running, and does the firewall allow that port?",
        exit_code=ExitCode.BAD_ANSWER,
    )
