import pytest
import torch

from gpudoc.train.ranks.protocol import Alone
from gpudoc.tune.child import pace
from gpudoc.tune.child.pace import StepPace, steps_per_block
from gpudoc.tune.trial.wire import LifeSign


class Trainee:
    device = torch.device("cpu")

    def __init__(self):
        self.calls = []

    def drain(self):
        self.calls.append("drain")


def test_a_block_waits_for_the_device_once_and_tells_seconds_per_step(monkeypatch):
    trainee, now = Trainee(), [0.0]
    monkeypatch.setattr(pace.time, "perf_counter", lambda: now[0])

    def step():
        trainee.calls.append("step")
        now[0] += 0.5

    one = StepPace(trainee=trainee, ranks=Alone(), emit=lambda event: None)
    assert one.time(step, 4) == 0.5
    assert trainee.calls == ["step"] * 4 + ["drain"]


def test_long_blocks_tell_that_they_live(monkeypatch):
    trainee, now, told = Trainee(), [100.0], []
    monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])

    def step():
        now[0] += 0.6

    StepPace(trainee=trainee, ranks=Alone(), emit=told.append).run(step, 4)
    assert told == [LifeSign()] * 2


@pytest.mark.parametrize(("kind", "first"), [("cpu", 2), ("cuda", 4)])
def test_a_gpu_is_awake_before_its_first_timing_and_stays_so(monkeypatch, kind, first):
    trainee, now = Trainee(), [0.0]
    trainee.device = torch.device(kind)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(pace.time, "perf_counter", lambda: now[0])

    def step():
        trainee.calls.append("step")
        now[0] += 0.25

    one = StepPace(trainee=trainee, ranks=Alone(), emit=lambda event: None)
    assert one.warm_up(step, 2) == 0.25
    assert trainee.calls.count("step") == first
    one.warm_up(step, 1)
    assert trainee.calls.count("step") == first + 1


@pytest.mark.parametrize(("step_s", "count"), [(1e-4, 100), (0.01, 12), (1.0, 1), (0.0, 100)])
def test_short_steps_make_long_blocks(step_s, count):
    assert steps_per_block(step_s) == count
