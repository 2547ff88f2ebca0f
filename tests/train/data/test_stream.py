"""Iterable data sets: the same samples however they are read, interrupted and resumed."""

from __future__ import annotations

import io
import json
import pickle
import random
import sys

import pytest
import torch
from safetensors.torch import load_file

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.train.data.feed import Feeds, LoaderSettings
from gpudoc.train.data.order import ENDLESS, Chunk, Order
from gpudoc.train.data.reader import DirectFeed, StoppedError
from gpudoc.train.data.stream import StreamReader
from gpudoc.train.stop import Stop
from tests.train.state.test_capture import losses, state_of
from tests.train.support import metrics, summary, train, train_here, write_workload


class Numbers(torch.utils.data.IterableDataset):
    """0 to count - 1, with a draw beside each; shuffled through a small buffer when `buffer` is more than 1."""

    def __init__(self, count=25, buffer=1):
        self.count, self.buffer = count, buffer
        self.read = 0
        self.epochs = []

    def set_epoch(self, epoch):
        self.epochs.append(epoch)

    def __iter__(self):
        waiting = []
        for number in range(self.count):
            self.read += 1
            waiting.append(number)
            if len(waiting) >= self.buffer:
                yield self._sample(waiting.pop(random.randrange(len(waiting))))
        while waiting:
            yield self._sample(waiting.pop())

    def _sample(self, number):
        return torch.tensor([float(number), random.random(), torch.rand(()).item()])


class Counting(Numbers):
    """Says where it is, and continues from there."""

    def __init__(self, count=25):
        super().__init__(count)
        self.at = 0

    def __iter__(self):
        for number in range(self.at, self.count):
            self.read += 1
            self.at = number + 1
            yield self._sample(number)
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def order(micro=4, samples=ENDLESS, **ranks):
    return Order(num_samples=samples, global_batch=10, micro_batch=micro, seed=3, shuffled=False, **ranks)


def rows(feed, one, first=0, end=6):
    found = [feed.take(chunk) for chunk in one.walk(first, end) if not chunk.weightless]
    feed.close()
    return torch.cat(found)


@pytest.fixture
def expected():
    return rows(DirectFeed(StreamReader(Numbers(buffer=5), None, 3), pin_memory=False), order())


def test_a_stream_that_ends_begins_again_with_other_randomness(expected):
    assert expected.shape == (60, 3)
    first, second = expected[:25], expected[25:50]
    assert sorted(first[:, 0].tolist()) == sorted(second[:, 0].tolist()) == list(range(25))
    assert first[:, 0].tolist() != second[:, 0].tolist()
    dataset = Numbers()
    rows(DirectFeed(StreamReader(dataset, None, 3), pin_memory=False), order())
    assert dataset.epochs == [0, 1, 2]


@pytest.mark.parametrize("micro", [10, 3, 1])
def test_the_micro_batch_changes_no_sample(expected, micro):
    found = rows(DirectFeed(StreamReader(Numbers(buffer=5), None, 3), pin_memory=False), order(micro))
    assert torch.equal(found, expected)


def test_a_worker_reads_the_same_samples(expected):
    feeds = Feeds(StreamReader(Numbers(buffer=5), None, 3), LoaderSettings(num_workers=1), Stop())
    assert torch.equal(rows(feeds.open(order(), 0, 6), order()), expected)


def test_two_ranks_share_the_stream_of_one(expected):
    parts = []
    for rank in (0, 1):
        reader = StreamReader(Numbers(buffer=5), None, 3)
        parts.append(rows(DirectFeed(reader, pin_memory=False), order(rank=rank, world=2)).split(5))
    together = torch.cat([part for step in zip(*parts, strict=True) for part in step])
    assert torch.equal(together, expected)


def test_a_stream_is_read_again_up_to_where_it_was(expected):
    dataset = Numbers(buffer=5)
    found = rows(DirectFeed(StreamReader(dataset, None, 3), pin_memory=False), order(), first=4)
    assert torch.equal(found, expected[40:])
    assert dataset.read >= 60


def test_a_stream_that_keeps_its_place_is_not_read_again():
    expected = rows(DirectFeed(StreamReader(Counting(), None, 3), pin_memory=False), order())
    first = StreamReader(Counting(), None, 3)
    rows(DirectFeed(first, pin_memory=False), order(), end=4)
    place = first.place()
    dataset = Counting()
    again = StreamReader(dataset, None, 3)
    again.go_to(torch.load(io.BytesIO(place), weights_only=True))
    assert torch.equal(rows(DirectFeed(again, pin_memory=False), order(), first=4), expected[40:])
    assert dataset.read == 20


def test_a_place_in_objects_that_no_safe_file_holds_is_not_kept():
    class Odd(Counting):
        def state_dict(self):
            return {"at": Stop()}

    reader = StreamReader(Odd(), None, 3)
    assert reader.keeps_place
    rows(DirectFeed(reader, pin_memory=False), order(), end=1)
    assert reader.place() is None
    assert not StreamReader(Numbers(), None, 3).keeps_place


def test_a_reader_that_is_sent_to_a_process_opens_the_stream_there():
    reader = StreamReader(Numbers(), None, 3)
    chunks = order(10).chunks(0)
    first = reader[chunks[0]]
    assert torch.equal(pickle.loads(pickle.dumps(reader))[chunks[0]], first)


def test_a_step_that_is_done_again_gets_its_samples_again():
    reader = StreamReader(Numbers(), None, 3)
    whole = [reader[chunk] for chunk in order(10).chunks(0)]
    smaller = [reader[chunk] for chunk in order(3).chunks(0)]
    assert torch.equal(torch.cat(whole), torch.cat(smaller))


def test_reading_leaves_the_processes_own_generators_alone():
    random.seed(1)
    torch.manual_seed(1)
    expected = random.random(), torch.rand(())
    random.seed(1)
    torch.manual_seed(1)
    rows(DirectFeed(StreamReader(Numbers(buffer=3), None, 3), pin_memory=False), order())
    assert (random.random(), torch.rand(())) == expected


def test_a_stop_is_heard_while_samples_are_passed_over():
    reader = StreamReader(Numbers(), None, 3)
    stop = Stop()
    feed = Feeds(reader, LoaderSettings(), stop).open(order(), 5, 6)
    stop.ask("Ctrl+C", ExitCode.INTERRUPTED)
    assert feed.take(order().chunks(5)[0]) is None
    with pytest.raises(StoppedError):
        reader[order().chunks(5)[0]]


@pytest.mark.parametrize(("count", "length", "said"), [(0, ENDLESS, "gave no sample"), (7, 9, "ended after 7 samples")])
def test_a_stream_that_cannot_go_on_says_why(count, length, said):
    reader = StreamReader(Numbers(count), None, 3, length)
    with pytest.raises(GpudocError, match=said):
        reader[Chunk(0, 0, 0, tuple(range(9)), True)]


STREAM = '''
import random
import torch

class Endless(torch.utils.data.IterableDataset):
    """Noisy points of a plane, without a length."""
    def __init__(self, count=70):
        self.points = torch.randn(count, 8, generator=torch.Generator().manual_seed(1))
    def __iter__(self):
        for x in self.points:
            yield x + random.random(), x.sum(0, keepdim=True)

class Placed(Endless):
    def __init__(self):
        super().__init__()
        self.at = 0
    def __iter__(self):
        while self.at < len(self.points):
            x = self.points[self.at]
            self.at += 1
            yield x + random.random(), x.sum(0, keepdim=True)
        self.at = 0
    def state_dict(self):
        return {"at": self.at}
    def load_state_dict(self, state):
        self.at = state["at"]

class Sized(Endless):
    def __len__(self):
        return len(self.points)
'''
LINE = ("--model", "cfg.yaml", "--profile", "off", "--no-preflight")


def write_stream(folder, name, **train):
    path = write_workload(folder, model={"dropout": 0.2}, log_every=1, **train)
    (folder / "streams.py").write_text(STREAM)
    config = json.loads(path.read_text())
    config["data"] = {"target": f"streams:{name}"}
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("name", "workers", "said"),
    [
        ("Endless", 0, "first 60 samples"),
        ("Endless", 2, "first 60 samples"),
        ("Placed", 0, ""),
        ("Sized", 0, "first 60 samples"),
    ],
)
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, capsys, name, workers, said):
    write_stream(tmp_path, name)
    line = (*LINE, "--num-workers", workers)
    assert train_here(tmp_path, *line, "--steps", "9", "--run-dir", "whole") == 0
    assert train_here(tmp_path, *line, "--steps", "5", "--run-dir", "run") == 0
    capsys.readouterr()
    assert train_here(tmp_path, *line, "--steps", "9", "--resume", "run") == 0
    told = capsys.readouterr().err
    assert ("read again" in told) == bool(said)
    assert said in told
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    assert state_of(tmp_path / "run", 9) == state_of(tmp_path / "whole", 9)


@pytest.mark.slow
def test_ranks_share_a_stream_and_one_process_goes_on_at_their_place(tmp_path, capfd):
    """Two ranks to step 5, one process to step 9: the weights of one process all the way."""
    write_stream(tmp_path, "Placed", global_batch=11)
    config = json.loads((tmp_path / "cfg.yaml").read_text())
    config["model"]["args"] = {}
    (tmp_path / "cfg.yaml").write_text(json.dumps(config))
    assert train_here(tmp_path, *LINE, "--run-dir", "alone", "--steps", 9) == 0
    done = train(tmp_path, *LINE, "--run-dir", "run", "--steps", 5, "--gpus", 2)
    assert done.returncode == 0, done.stderr
    capfd.readouterr()
    assert train_here(tmp_path, *LINE, "--run-dir", "run", "--steps", 9) == 0
    assert "read again" not in capfd.readouterr().err
    weights = [load_file(tmp_path / run / "checkpoints/step-9/model.safetensors") for run in ("alone", "run")]
    assert all((weights[0][name] - weights[1][name]).abs().max() < 1e-5 for name in weights[0])


def test_an_eval_stream_is_read_to_its_length_each_time(tmp_path, capsys):
    write_stream(tmp_path, "Sized", eval_every=3)
    config = json.loads((tmp_path / "cfg.yaml").read_text())
    config["data"]["eval"] = {"target": "streams:Sized"}
    (tmp_path / "cfg.yaml").write_text(json.dumps(config))
    assert train_here(tmp_path, *LINE) == 0
    rows = [row["eval"] for row in metrics(tmp_path / "runs/cfg") if "eval" in row]
    assert [row["samples"] for row in rows] == [70, 70]
    config["data"]["eval"] = {"target": "streams:Endless"}
    (tmp_path / "cfg.yaml").write_text(json.dumps(config))
    capsys.readouterr()
    assert train_here(tmp_path, *LINE) == 2
    assert "data.eval: an iterable data set without a length" in capsys.readouterr().err


def test_an_endless_stream_needs_steps(tmp_path, capsys):
    write_stream(tmp_path, "Endless")
    assert train_here(tmp_path, *LINE) == 2
    told = capsys.readouterr().err
    assert "has no length" in told
    assert "--steps N" in told


def test_more_workers_than_a_stream_can_use_are_said(tmp_path, capsys):
    write_stream(tmp_path, "Endless")
    assert train_here(tmp_path, *LINE, "--steps", "2", "--num-workers", "3") == 0
    assert "one loader worker instead of 3" in capsys.readouterr().err
    assert summary(tmp_path / "runs/cfg")["settings"]["num_workers"]["value"] == 1


def test_a_length_gives_a_stream_epochs(tmp_path):
    write_stream(tmp_path, "Sized", epochs=2)
    assert train_here(tmp_path, *LINE) == 0
    assert summary(tmp_path / "runs/cfg")["steps"] == 12
    assert metrics(tmp_path / "runs/cfg")[-1]["samples"] == 140


@pytest.mark.slow
def test_the_proof_holds_for_a_stream(tmp_path, monkeypatch, capfd):
    write_stream(tmp_path, "Endless")
    line = (*LINE, "--prove-resume", "--json")
    # the runs that are compared are processes of their own
    monkeypatch.setattr(sys, "argv", ["gpudoc", "train", "--device", "cpu", *line])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert train_here(tmp_path, *line) == 0
    assert json.loads(capfd.readouterr().out)["exact"]


class Failing:
    """Has no memory for one sample when it is asked for the first time."""

    missing = 13

    def _sample(self, number):
        if number == self.missing:
            self.missing = -1
            raise MemoryError("no memory for this one")
        return super()._sample(number)


class FailingNumbers(Failing, Numbers):
    pass


class FailingCounting(Failing, Counting):
    pass


def test_a_stream_that_failed_is_read_again_up_to_the_same_sample():
    whole = rows(DirectFeed(StreamReader(Numbers(), None, 1), False), order(), 0, 2)
    feed = DirectFeed(StreamReader(FailingNumbers(), None, 1), False)
    found = []
    for chunk in order().walk(0, 2):
        try:
            found.append(feed.take(chunk))
        except MemoryError:
            found.append(feed.take(chunk))
    assert torch.equal(torch.cat(found), whole)


def test_a_stream_that_keeps_its_place_is_not_asked_again_where_it_would_give_another_sample():
    feed = DirectFeed(StreamReader(FailingCounting(), None, 1), False)
    with pytest.raises(GpudocError, match="after 13 samples") as caught:
        rows(feed, order(), 0, 2)
    assert isinstance(caught.value.__cause__, MemoryError)
