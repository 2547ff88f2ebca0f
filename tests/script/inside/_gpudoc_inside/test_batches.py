"""What was drawn between steps is kept by loader; a reader in another thread, or a generator, is not mistaken."""

from __future__ import annotations

import json
import threading

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from gpudoc.script.inside._gpudoc_inside.batches import BatchFeed
from gpudoc.script.inside._gpudoc_inside.report import HookReport, RankPulse

ROWS = TensorDataset(torch.arange(12.0))


@pytest.fixture
def feed(tmp_path):
    (tmp_path / "order.json").write_text('{"purpose": "look", "record_samples": false}')
    report = HookReport(str(tmp_path))
    yield BatchFeed(report, RankPulse(report))
    for undo in report.undo:
        undo()


def known(feed, number, batch=4, kind=DataLoader):
    loader = kind(ROWS, batch)
    feed.numbers[loader] = number
    return loader


def draw(feed, loader):
    return [batch for (batch,) in feed.iterating(loader, type(loader).__iter__)]


def told(tmp_path):
    return [json.loads(line) for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()]


def test_stretches_follow_each_other_as_the_loaders_are_read(feed):
    first, second = known(feed, 0), known(feed, 1, 6)
    draw(feed, first)
    with torch.no_grad():
        draw(feed, second)
    draw(feed, first)
    found = feed.taken()
    assert [(stretch.loader, stretch.grad, stretch.samples) for stretch in found] == [
        (0, True, 12),
        (1, False, 12),
        (0, True, 12),
    ]
    assert all(0 < stretch.wait_s <= stretch.ended - stretch.began for stretch in found)
    assert feed.taken() == []


def test_a_loader_that_is_not_known_is_left_alone(feed):
    assert len(draw(feed, DataLoader(ROWS, 4))) == 3
    assert feed.taken() == []


def test_reading_in_another_thread_is_no_waiting_and_is_said(feed, tmp_path):
    loader = known(feed, 0)
    thread = threading.Thread(target=draw, args=(feed, loader))
    thread.start()
    thread.join()
    (stretch,) = feed.taken()
    assert (stretch.samples, stretch.wait_s) == (12, 0.0)
    assert [event["other_thread"] for event in told(tmp_path) if event["kind"] == "data"] == [True]


def test_an_iterator_that_cannot_be_seen_into_is_given_as_it_is(feed):
    class Generating(DataLoader):
        def __iter__(self):
            yield from super().__iter__()

    assert len(draw(feed, known(feed, 0, kind=Generating))) == 3
    assert feed.taken() == []


def test_each_first_look_is_told_once(feed, tmp_path):
    loader = known(feed, 0)
    draw(feed, loader)
    draw(feed, loader)
    (data,) = [event for event in told(tmp_path) if event["kind"] == "data"]
    assert (data["random"], data["batch_bytes"]) == (False, 16)
