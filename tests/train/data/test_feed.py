"""Samples arrive in order, each with its own randomness, from this process or from workers."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time

import numpy
import pytest
import torch

from gpudoc.errors import GpudocError
from gpudoc.train.data import feed as feed_module
from gpudoc.train.data.feed import Feeds, LoaderSettings, _explain
from gpudoc.train.data.order import Order
from gpudoc.train.data.reader import DirectFeed, Reader
from gpudoc.train.stop import Stop


class Drawing(torch.utils.data.Dataset):
    """`late`: only samples from there on draw, so that the first chunks look as if nothing did."""

    def __init__(self, late=0, sleep=0.0):
        self.late = late
        self.sleep = sleep

    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(self.sleep)
        if index < self.late:
            return torch.tensor([float(index), 0.0, 0.0, 0.0])
        return torch.tensor([index, random.random(), numpy.random.rand(), torch.rand(()).item()])


def order(micro):
    return Order(num_samples=40, global_batch=10, micro_batch=micro, seed=5)


def rows(feed, one):
    found = [feed.take(chunk) for chunk in one.walk(0, 8)]
    feed.close()
    return torch.cat(found)


@pytest.mark.parametrize("late", [0, 30])
def test_neither_workers_nor_micro_batch_change_a_sample(late):
    reader = Reader(Drawing(late), None, 5)
    expected = rows(DirectFeed(reader, pin_memory=False), order(10))
    assert torch.equal(rows(DirectFeed(Reader(Drawing(late), None, 5), pin_memory=False), order(3)), expected)
    feeds = Feeds(Reader(Drawing(late), None, 5), LoaderSettings(num_workers=2), Stop())
    assert torch.equal(rows(feeds.open(order(4), 0, 8), order(4)), expected)
    first, second = expected[:40], expected[40:]
    assert not torch.equal(first[first[:, 0].argsort()], second[second[:, 0].argsort()]), "epochs must differ"


def test_a_stop_is_heard_while_the_loader_blocks():
    stop = Stop()
    feed = Feeds(Reader(Drawing(sleep=5.0), None, 5), LoaderSettings(num_workers=1), stop).open(order(10), 0, 8)
    timer = threading.Timer(0.3, lambda: stop.ask("test", 75))
    timer.start()
    assert feed.take(next(order(10).walk(0, 1))) is None
    feed.close()
    timer.join()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_that_reaches_a_worker_before_it_can_ignore_it_ends_no_worker(monkeypatch, number):
    ours = feed_module._start_worker

    def signalled_first(worker):
        os.kill(os.getpid(), number)
        ours(worker)

    monkeypatch.setattr(feed_module, "_start_worker", signalled_first)
    feed = Feeds(Reader(Drawing(), None, 5), LoaderSettings(num_workers=2), Stop()).open(order(10), 0, 2)
    assert len(feed.take(next(order(10).walk(0, 1)))) == 10
    feed.close()
    assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


# as torch says it, at whatever line its SIGCHLD handler finds; and as a fork says that it cannot be
@pytest.mark.parametrize(
    ("problem", "error"),
    [
        (RuntimeError("DataLoader worker (pid 5) is killed by signal: Killed. "), GpudocError),
        (BlockingIOError(11, "Resource temporarily unavailable"), BlockingIOError),
    ],
)
def test_of_workers_that_do_not_all_start_none_stays(monkeypatch, problem, error):
    before = set(multiprocessing.active_children())
    start = feed_module.start_workers

    def heard_at_once(loader, *, pins):
        start(loader, pins=pins)
        raise problem

    monkeypatch.setattr(feed_module, "start_workers", heard_at_once)
    with pytest.raises(error, match=r"a loader worker died|Resource temporarily"):
        Feeds(Reader(Drawing(sleep=60), None, 5), LoaderSettings(num_workers=2), Stop()).open(order(10), 0, 2)
    for worker in set(multiprocessing.active_children()) - before:
        worker.join(20)
        assert worker.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("problem", [ConnectionResetError(104, "Connection reset by peer"), EOFError()])
def test_a_connection_that_breaks_is_a_dead_worker(problem):
    explained = _explain(problem)
    assert "a loader worker died" in str(explained)
    assert "--num-workers 0" in explained.hint
