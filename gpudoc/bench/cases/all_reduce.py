"""All-reduce over all GPUs of the machine, as data-parallel training uses it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpudoc.bench.collective import READY, SIZES, bus_gb_per_s
from gpudoc.bench.model import OWN_PROCESSES, Case, RawReading
from gpudoc.bench.sampling import Bench
from gpudoc.process.arguments import own_module
from gpudoc.process.ending import how_it_ended
from gpudoc.temporary import TemporaryFolder

# many ranks take minutes to load torch and CUDA's libraries from a shared or lazily loaded disk
JOIN_S = 180.0
# after all ranks are ready; shorter than the silence after which the parent gives the measuring process up, so that a
# hang here costs only this case
TIMEOUT_S = 50.0
_SIGN_S = 5.0
# a rank may be stuck in the driver, so waiting for its end has a limit
KILL_S = 5.0
PROGRAM = own_module("gpudoc.bench.collective")


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of the group, a child of this one in its session, and the files with its output."""

    process: subprocess.Popen[bytes]
    out: Path
    errors: Path


def measure(
    backend: str, kind: str, ranks: int, sizes: Sequence[int], is_alive: Callable[[], None] = lambda: None
) -> dict[int, list[float]]:
    """Seconds of each all-reduce by size, from `ranks` processes, which all end afterwards; calls `is_alive` meanwhile.

    RuntimeError with the last words of the failed rank, with the ranks that did not join within JOIN_S, or if the ranks
    hang for TIMEOUT_S.
    """
    with TemporaryFolder("reduce") as folder:
        started = [_start(folder, rank, ranks, (backend, kind, *map(str, sizes))) for rank in range(ranks)]
        try:
            _wait_for_all(started, is_alive)
            _wait(started)
            lines = started[0].out.read_text().splitlines()
        finally:
            _end(started)
    line = next((text for text in lines if text.startswith("{")), "")
    if not line:
        raise RuntimeError(f"all-reduce over {ranks} processes gave no figures")
    return {int(size): seconds for size, seconds in json.loads(line).items()}


def _start(folder: Path, rank: int, ranks: int, arguments: Sequence[str]) -> Rank:
    # files, because NCCL_DEBUG=INFO would fill a pipe that nobody reads
    out, errors = folder / f"out.{rank}", folder / f"errors.{rank}"
    place = (str(rank), str(ranks), str(os.getpid()), str(folder / "meeting"))
    with out.open("wb") as said, errors.open("wb") as failed:
        process = subprocess.Popen([*PROGRAM, *place, *arguments], stdout=said, stderr=failed)
    return Rank(process, out, errors)


def _wait_for_all(started: Sequence[Rank], is_alive: Callable[[], None]) -> None:
    """Wait until every rank is about to join."""
    began = sign = time.monotonic()
    while late := [str(rank) for rank, one in enumerate(started) if READY not in one.out.read_text()]:
        _check(started)
        now = time.monotonic()
        if now - began > JOIN_S:
            where = f"rank {', '.join(late)} did not join"
            raise RuntimeError(f"all-reduce over {len(started)} processes hung for {JOIN_S:.0f} s: {where}")
        if now - sign > _SIGN_S:
            is_alive()
            sign = now
        time.sleep(0.02)
    is_alive()


def _wait(started: Sequence[Rank]) -> None:
    """Wait until every rank has ended."""
    deadline = time.monotonic() + TIMEOUT_S
    while not all(codes := [one.process.poll() == 0 for one in started]):
        _check(started)
        if time.monotonic() > deadline:
            where = f"all joined, {codes.count(True)} ended; NCCL_DEBUG=INFO shows where the others wait"
            raise RuntimeError(f"all-reduce over {len(started)} processes hung for {TIMEOUT_S:.0f} s: {where}")
        time.sleep(0.02)


def _check(started: Sequence[Rank]) -> None:
    failed = [one for one in started if one.process.poll()]
    if failed:
        raise RuntimeError(f"all-reduce over {len(started)} processes failed: {_last_words(failed)}")


def _last_words(failed: Sequence[Rank]) -> str:
    lines = [line.strip() for one in failed for line in one.errors.read_text(errors="replace").splitlines()]
    said = [line for line in lines if "Error" in line]
    return said[-1] if said else f"rank {how_it_ended(failed[0].process.returncode)}"


def _end(started: Sequence[Rank]) -> None:
    for one in started:
        one.process.kill()
    for one in started:
        with suppress(subprocess.TimeoutExpired):
            one.process.wait(timeout=KILL_S)


def run(bench: Bench) -> Iterator[RawReading]:
    """Rows all_reduce in GB/s of bus bandwidth (comparable to the links) by size."""
    ranks = bench.plan.num_gpus
    began = time.monotonic()
    for size, seconds in measure("nccl", "cuda", ranks, SIZES, bench.is_alive).items():
        yield RawReading(
            name="all_reduce",
            device=bench.device.name,
            parameters={"bytes": size, "ranks": ranks},
            unit="GB/s",
            samples=tuple(bus_gb_per_s(size, one, ranks) for one in seconds),
            # this process and the rank that has the same GPU
            context={OWN_PROCESSES: 2.0},
            round=bench.round,
            began_s=began,
            ended_s=time.monotonic(),
        )


def absent_because(bench: Bench) -> str:
    """Why an all-reduce is not possible here; '' if it is."""
    if bench.plan.num_gpus < 2:
        return "there is only one GPU"
    # its ranks need a context on GPUs where this process already has the only one
    return (
        "the GPUs are in an exclusive compute mode, which allows only one process on each"
        if bench.plan.is_exclusive
        else ""
    )


CASE = Case(
    name="all_reduce",
    meaning="all-reduce over all GPUs",
    share=1.0,
    absent_because=absent_because,
    run=run,
    rows={
        "all_reduce": (
            "Sums one tensor over all GPUs with NCCL, by size. The figure is bus bandwidth as nccl-tests defines it, "
            "so it compares with the links for any number of GPUs. Low: NVLink is not used, or one link is slow."
        ),
    },
)
