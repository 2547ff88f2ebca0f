"""Time is split without remainder."""

from __future__ import annotations

import sys
import time

import pytest
import torch

from gpudoc.train.step.meters import NOTHING, Meter, Split, Stopwatch, memory_peak_bytes

CPU = torch.device("cpu")


def test_what_nobody_claims_is_other():
    meter = Meter(CPU)
    meter.restart()
    time.sleep(0.02)
    meter.wait(0.005)
    meter.compute += 0.01
    meter.transfer.start()
    meter.transfer.stop()
    split = meter.take()
    assert split.seconds["data_wait"] == 0.005
    assert split.seconds["other"] > 0
    assert split.wall_s >= 0.02
    assert meter.take().seconds["compute"] == 0


def test_communication_and_transfer_are_taken_out_of_the_computation_around_them():
    meter = Meter(CPU)
    meter.restart()
    meter.communicate.start()
    time.sleep(0.01)
    meter.communicate.stop()
    meter.compute += 0.05
    split = meter.take()
    assert split.seconds["communicate"] >= 0.01
    assert split.seconds["compute"] == pytest.approx(0.05 - split.seconds["communicate"])


def test_splits_add_and_share():
    one = Split({**NOTHING.seconds, "compute": 3.0, "data_wait": 1.0})
    assert (one + one).seconds["compute"] == 6.0
    assert one.share("data_wait") == 0.25
    assert NOTHING.share("compute") == 0.0


def test_a_stopwatch_starts_again_from_zero():
    watch = Stopwatch(CPU)
    watch.start()
    watch.stop()
    assert watch.take() >= 0
    assert watch.take() == 0


def test_the_peak_never_falls():
    before = memory_peak_bytes(CPU)
    block = torch.ones(30 << 20, dtype=torch.uint8)
    del block
    assert memory_peak_bytes(CPU) >= before > 1 << 20


def test_the_peak_is_known_where_there_is_no_getrusage(monkeypatch):
    import psutil

    assert psutil.Process().memory_info().rss, "its Linux half needs the module itself"
    monkeypatch.setitem(sys.modules, "resource", None)
    assert memory_peak_bytes(CPU) > 1 << 20


def test_the_end_of_a_stretch_that_never_began_is_no_time():
    """On a CPU backward is not watched for what it waits for, and its end is told all the same."""
    meter = Meter(torch.device("cpu"))
    meter.backward_done()
    assert meter.take().seconds["communicate"] == 0.0
