"""Time is split without remainder."""

from __future__ import annotations

import time

import torch

from gpudoc.train.meter import meters
from gpudoc.train.meter.compilations import Compilations
from gpudoc.train.meter.meters import Meter, Split, Stopwatch, _Begun, _Gaps, memory_peak_bytes

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


def test_communication_is_taken_out_of_the_computation_around_it(monkeypatch):
    times = iter((0.0, 10.0, 12.0, 20.0))
    monkeypatch.setattr(meters, "clock", lambda: next(times))
    meter = Meter(CPU)
    meter.communicate.start()
    meter.communicate.stop()
    meter.compute += 5.0
    split = meter.take()
    assert split.seconds["communicate"] == 2.0
    assert split.seconds["compute"] == 3.0
    assert split.seconds["other"] == 15.0


def test_a_split_has_shares():
    one = Split.of({"compute": 3.0, "data_wait": 1.0})
    assert one.share("data_wait") == 0.25
    assert Split.of({}).share("compute") == 0.0


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
    monkeypatch.delattr(meters, "resource")
    assert memory_peak_bytes(CPU) > 1 << 20


def test_the_end_of_a_stretch_that_never_began_is_no_time():
    """On a CPU backward is not watched for what it waits for, and its end is told all the same."""
    meter = Meter(torch.device("cpu"))
    meter.backward_done()
    assert meter.take().seconds["communicate"] == 0.0


def test_waiting_for_the_votes_of_others_is_communication():
    meter = Meter(CPU)
    meter.restart()
    meter.voting += 3.0
    meter.compute += 10.0
    split = meter.take()
    assert split.seconds["communicate"] == 3.0
    assert split.seconds["compute"] == 7.0
    assert meter.take().seconds["communicate"] == 0.0


def test_compiling_is_taken_out_of_the_computation_around_it(monkeypatch):
    meter = Meter(CPU)
    monkeypatch.setattr(Compilations, "read", lambda _: 4.0)
    meter.restart()
    meter.compute += 10.0
    assert meter.take().seconds["compile"] == 4.0
    meter.compute += 1.0
    seconds = meter.take().seconds
    assert (seconds["compile"], seconds["compute"]) == (1.0, 0.0)


def test_a_split_of_an_earlier_version_lacks_nothing():
    found = Split.of({"compute": 3.0, "other": 1.0})
    assert found.wall_s == 4.0
    assert found.seconds["host"] == 0.0


def test_a_gap_between_steps_is_claimed_once_and_python_has_the_rest():
    gaps = _Gaps()
    gaps.add(10.0, _Begun(data_wait=3.0, evaluate=4.0, checkpoint=1.0))
    assert (gaps.data_wait, gaps.evaluate, gaps.checkpoint, gaps.host) == (3.0, 4.0, 1.0, 2.0)
    # the device was busy with earlier steps for most of what the host waited
    gaps.add(2.0, _Begun(data_wait=0.5, evaluate=0.0, checkpoint=50.0))
    assert (gaps.data_wait, gaps.checkpoint, gaps.host) == (3.5, 2.5, 2.0)
