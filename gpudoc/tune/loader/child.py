"""The process that measures loaders: questions on stdin, answers on stdout.

Output of the user's code goes to stderr, so that only answers are on stdout.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from gpudoc.process.lifetime import die_with_parent
from gpudoc.process.loader_workers import shorten_socket_paths, start_worker
from gpudoc.train.blame import users_traceback
from gpudoc.tune.child.training import Trainee
from gpudoc.tune.loader.messages import (
    AskRun,
    Costs,
    LoaderAnswer,
    LoaderFailure,
    LoaderQuestion,
    LoaderRun,
    Open,
    Opened,
    Ran,
)
from gpudoc.tune.model.loader import LEAST_STEPS, WARM_STEPS, LoaderCosts, LoaderSetting, resample_batches
from gpudoc.tune.trial.wire import decode, encode
from gpudoc.workload.batch import Batch, num_bytes
from gpudoc.workload.build import Workload

_PARENT = "gpudoc tune"


class TimedDataset(Dataset[object]):
    """A data set that returns each sample with the seconds that it took."""

    def __init__(self, dataset: Dataset[object]) -> None:
        self.dataset = dataset

    def __getitem__(self, index: int) -> tuple[object, float]:
        start = time.perf_counter()
        sample = self.dataset[index]
        return sample, time.perf_counter() - start


class TimedBatches(TimedDataset):
    """The same for a data set that fetches a whole batch at once: each sample gets an equal share of the seconds."""

    def __getitems__(self, indices: list[int]) -> list[tuple[object, float]]:
        """The samples of one batch, each with its share of the batch's seconds."""
        start = time.perf_counter()
        samples = self.dataset.__getitems__(indices)  # type: ignore[attr-defined]
        share = (time.perf_counter() - start) / len(indices)
        return [(sample, share) for sample in samples]


@dataclass(frozen=True, slots=True)
class LoaderNote:
    """A worker's note on one batch: seconds of its samples and of collating them, CPU seconds since the last batch.

    `cpu_s` is unknown for a worker's first batch; only that batch says how much private memory the worker has.
    """

    sample_s: list[float]
    collate_s: float
    cpu_s: float | None
    private_bytes: int | None


class TimedCollate:
    """Collates timed samples into a batch and the note about it."""

    def __init__(self, collate: Callable[[list[object]], Batch]) -> None:
        self.collate = collate
        self.last_cpu_s: float | None = None

    def __call__(self, timed: list[tuple[object, float]]) -> tuple[Batch, LoaderNote]:
        """The collated samples and the note about them."""
        start = time.perf_counter()
        batch = self.collate([sample for sample, _ in timed])
        seconds = [taken for _, taken in timed]
        cpu_s = time.process_time()
        note = LoaderNote(
            sample_s=seconds,
            collate_s=time.perf_counter() - start,
            cpu_s=None if self.last_cpu_s is None else cpu_s - self.last_cpu_s,
            private_bytes=private_bytes() if self.last_cpu_s is None else None,
        )
        self.last_cpu_s = cpu_s
        return batch, note


class LoaderBench:
    """One workload with its step on a device, and loaders over its data, measured on request."""

    def __init__(self, order: Open) -> None:
        self.workload = Workload(order.loaded)
        self.device = torch.device(order.device)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self.trainee = Trainee(self.workload, order.variant, self.device)
        self.dataset = self.workload.dataset
        self.collate: Callable[[list[object]], Batch] = self.workload.collate or default_collate
        self.batch_size = min(order.batch_size, self.workload.num_samples)
        self.indices = self._endless_indices()
        shorten_socket_paths()

    def costs(self, seconds: float) -> LoaderCosts:
        """The cost of a batch in one worker and in the main process, and of a step whose batch is already there."""
        wrapped = (TimedBatches if hasattr(self.dataset, "__getitems__") else TimedDataset)(self.dataset)
        loader = DataLoader(
            wrapped,
            batch_sampler=self._batches(400),
            collate_fn=TimedCollate(self.collate),
            num_workers=1,
            worker_init_fn=start_worker,
        )
        notes: list[LoaderNote] = []
        main_s: list[float] = []
        batch: Batch = None
        start = time.perf_counter()
        iterator = iter(loader)
        while len(notes) < 4 or (time.perf_counter() - start < seconds and len(notes) < 400):
            before = time.thread_time()
            batch, note = next(iterator)
            main_s.append(time.thread_time() - before)
            notes.append(note)
        del iterator
        step_s, step_cpu_s = self._time_step(batch, seconds / 2)
        kept = notes[1:]
        samples = [seconds for note in kept for seconds in note.sample_s]
        overhead = sum(note.collate_s for note in kept) / len(kept)
        cpu = [note.cpu_s for note in kept if note.cpu_s is not None]
        return LoaderCosts(
            batch_s=resample_batches(samples, self.batch_size, overhead, 200),
            worker_cpu_s=sum(cpu) / len(cpu),
            main_s=sum(main_s[1:]) / len(main_s[1:]),
            step_s=step_s,
            step_cpu_s=step_cpu_s,
            batch_bytes=num_bytes(batch),
            worker_private_bytes=max(note.private_bytes or 0 for note in notes),
        )

    def run(self, setting: LoaderSetting, seconds: float, period_s: float) -> LoaderRun:
        """Run real steps fed by a real loader: seconds per step after the first batches, and the cost of a new epoch.

        Batches that are still under way at the end of the timed part are drained without being timed. So the timed
        part does not profit from a queue filled before it, nor from workers that have run out of work.
        """
        workers, ahead = setting.num_workers, setting.batches_ahead
        drop = max(WARM_STEPS, workers + 1)
        wanted = min(2000, max(LEAST_STEPS, round(seconds / period_s)))
        loader = self._loader(setting, drop + wanted + ahead)
        start = time.perf_counter()
        iterator = iter(loader)
        batch = next(iterator)
        start_s = time.perf_counter() - start
        self.trainee.step([batch])
        for _ in range(drop - 1):
            self.trainee.step([next(iterator)])
        self._wait()
        done, waited, begin = 0, 0.0, time.perf_counter()
        while done < wanted and (done < LEAST_STEPS or time.perf_counter() - begin < 3 * seconds):
            asked = time.perf_counter()
            batch = next(iterator)
            waited += time.perf_counter() - asked
            self.trainee.step([batch])
            done += 1
        self._wait()
        elapsed = time.perf_counter() - begin
        restart_s = self._restart(loader, iterator) if workers and done == wanted else start_s
        return LoaderRun(elapsed / done, done, waited / elapsed, start_s, restart_s)

    def _restart(self, loader: DataLoader[object], iterator: Iterator[object]) -> float:
        """Seconds to the first batch of the next epoch with the workers still alive."""
        for _ in iterator:
            pass
        start = time.perf_counter()
        next(iter(loader))
        return time.perf_counter() - start

    def _loader(self, setting: LoaderSetting, count: int) -> DataLoader[object]:
        workers = setting.num_workers
        return DataLoader(
            self.dataset,
            batch_sampler=self._batches(count),
            collate_fn=self.workload.collate,
            num_workers=workers,
            prefetch_factor=setting.prefetch_factor if workers else None,
            pin_memory=setting.pin_memory,
            persistent_workers=workers > 0,
            worker_init_fn=start_worker if workers else None,
        )

    def _batches(self, count: int) -> list[list[int]]:
        return [list(itertools.islice(self.indices, self.batch_size)) for _ in range(count)]

    def _endless_indices(self) -> Iterator[int]:
        """All samples in a fixed random order, over and over, so that a run does not read samples just cached."""
        order = torch.randperm(self.workload.num_samples, generator=torch.Generator().manual_seed(0)).tolist()
        return itertools.cycle(order)

    def _time_step(self, batch: Batch, seconds: float) -> tuple[float, float]:
        """Wall and CPU seconds (all threads) of one step on a batch that is there already."""
        for _ in range(WARM_STEPS):
            self.trainee.step([batch])
        self._wait()
        count, cpu, begin = 0, time.process_time(), time.perf_counter()
        while count < LEAST_STEPS or (time.perf_counter() - begin < seconds and count < 1000):
            self.trainee.step([batch])
            self._wait()
            count += 1
        return (time.perf_counter() - begin) / count, (time.process_time() - cpu) / count

    def _wait(self) -> None:
        """Wait until the device has done all steps so far."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.trainee.drain()


def private_bytes() -> int:
    """Host memory that only this process uses (`grep Private /proc/self/smaps_rollup`); 0 if unknown."""
    try:
        rows = Path("/proc/self/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return 0
    return sum(int(row.split()[1]) * 1024 for row in rows if row.startswith("Private_"))


def answer(bench: LoaderBench, question: LoaderQuestion) -> LoaderAnswer:
    """The answer to one question; an exception in the user's code becomes a `LoaderFailure`."""
    asks = question.asks
    try:
        if isinstance(asks, AskRun):
            return LoaderAnswer(says=Ran(run=bench.run(asks.setting, asks.seconds, asks.period_s)))
        return LoaderAnswer(says=Costs(costs=bench.costs(asks.seconds)))
    except Exception as problem:
        return LoaderAnswer(says=describe(problem))


def describe(problem: BaseException) -> LoaderFailure:
    """A failure as data: the last line of the message, and the traceback; a worker's traceback is part of its text."""
    # torch says "exited unexpectedly" and chains the signal, which is the useful part for a reader
    while problem.__context__ is not None and "exited unexpectedly" in str(problem):
        problem = problem.__context__
    text = users_traceback(problem).rstrip()
    last = next((line for line in reversed(str(problem).splitlines()) if line.strip()), "")
    return LoaderFailure(failure=f"{type(problem).__name__}: {last}", traceback=text)


def main(questions: TextIO, parent: int) -> int:
    """Answer until the questions end, or process `parent`, which asks them, ends; returns exit code 0."""
    with os.fdopen(os.dup(1), "wb") as replies:
        os.dup2(2, 1)
        die_with_parent(parent)

        def reply(said: LoaderAnswer) -> None:
            replies.write(encode(said) + b"\n")
            replies.flush()

        order = decode(Open, questions.readline().encode(), _PARENT)
        try:
            bench = LoaderBench(order)
        except Exception as problem:
            reply(LoaderAnswer(says=describe(problem)))
            return 0
        reply(LoaderAnswer(says=Opened(num_samples=bench.workload.num_samples, batch_size=bench.batch_size)))
        for line in questions:
            reply(answer(bench, decode(LoaderQuestion, line.encode(), _PARENT)))
    return 0
