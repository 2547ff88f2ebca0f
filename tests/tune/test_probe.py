import pytest
import torch

from gpudoc.errors import GpudocError
from gpudoc.tune import limit, probe
from gpudoc.tune.limit import read_process_memory
from gpudoc.tune.probe import Place, Prepared, Probe, describe_failure, endless, mean_per_cycle
from gpudoc.tune.samples import collect_samples
from gpudoc.tune.trial import Feed, Request
from gpudoc.units import GIB, MIB
from gpudoc.workload.build import load_workload

from .planted import write_workload


@pytest.fixture
def events(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    workload = load_workload(str(write_workload(tmp_path)))
    prepared = Prepared(workload=workload, samples=collect_samples(workload), eval_samples=None, num_threads=1)

    def run(request, seen=lambda event: None, **place):
        told = []

        def emit(event):
            told.append(event)
            seen(event)

        Probe(prepared, request, Place(device="cpu", limit_bytes=64 * GIB, **place), emit).run()
        return told

    return run


def stages(told):
    return [event["stage"] for event in told if event["event"] == "stage"]


def batches(told):
    return [event["point"]["batch"] for event in told if event["event"] == "point"]


def test_calibration_goes_up_to_the_cap_and_tells_each_point(events):
    assert batches(events(Request(kind="calibrate", batches=(50,)), cap=40))[:3] == [1, 2, 4]
    assert batches(events(Request(kind="calibrate", batches=(50,)), cap=40))[-1] == 40


def test_calibration_ends_when_its_time_is_over(events):
    assert batches(events(Request(kind="calibrate", batches=(500,)), cap=500, stop_s=0.0)) == [1]


def test_the_steady_script_in_its_order(events):
    told = events(Request(kind="steady", batches=(100,), steps=9))
    assert stages(told) == ["build", "train", "partial batch", "eval", "train", "checkpoint", "steady"]
    facts = {event["name"]: event["value"] for event in told if event["event"] == "fact"}
    assert facts == {"settled": 1, "growth_bytes_per_step": 0.0}
    assert "partial batch" not in stages(events(Request(kind="steady", batches=(128,), steps=1)))


def test_a_fit_meets_the_other_batches_between_its_steps_and_rests_no_longer_on_the_slack(events, monkeypatch):
    """As much as training wanders by is kept free in the first steps, and given back before a checkpoint."""
    monkeypatch.setattr(probe, "_WANDERING_BYTES", 512 * MIB)
    held = {}

    def seen(event):
        if event["event"] == "stage":
            held[event["stage"]] = read_process_memory().data_bytes

    events(Request(kind="steady", batches=(100,), steps=1), seen=seen)
    assert list(held) == ["build", "train", "partial batch", "eval", "checkpoint", "steady"]
    assert held["eval"] - held["checkpoint"] > 400 * MIB
    assert stages(events(Request(kind="fit", batches=(100,), steps=2)))[1:] == [
        "train",
        "partial batch",
        "eval",
        "train",
    ]


def test_steps_that_read_the_data_set_have_what_the_kept_samples_take_besides(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    workload = load_workload(str(write_workload(tmp_path)))
    prepared = Prepared(workload=workload, samples=collect_samples(workload), eval_samples=None, num_threads=1)
    given = []
    monkeypatch.setattr(limit, "apply_limit", lambda device, limit_bytes, besides: given.append(besides))
    monkeypatch.setattr(probe.signal, "pthread_sigmask", lambda how, signals: None)
    for request in (Request(kind="joint", batches=(8,), feed=Feed()), Request(kind="fit", batches=(8,))):
        probe.run_probe(prepared, request, Place(device="cpu", limit_bytes=64 * GIB), lambda event: None)
    assert given == [prepared.kept_bytes, 0]
    assert given[0] > 0


def test_every_size_is_timed_upward_and_downward(events):
    told = events(Request(kind="speed", batches=(2, 4), seconds_per_batch=0.01))
    assert batches(told) == [2, 4, 4, 2]
    assert len(told[-1]["point"]["step_s"]) >= 2


def test_steps_fed_by_a_real_loader(events):
    told = events(Request(kind="joint", batches=(8,), feed=Feed(), seconds_per_batch=0.05))
    assert batches(told) == [8]
    assert len(told[-1]["point"]["step_s"]) >= 3


def test_failures_are_told_with_the_traceback_only_when_it_is_the_users():
    mine = describe_failure(GpudocError("no such thing", hint="that one", exit_code=2))
    assert (mine["end"], mine["detail"], mine["hint"], mine["code"]) == ("user_error", "no such thing", "that one", 2)
    theirs = describe_failure(KeyError("x"))
    assert "KeyError" in theirs["traceback"]
    assert describe_failure(MemoryError())["traceback"] == ""


def test_a_loader_goes_on_epoch_after_epoch():
    loader = endless(torch.utils.data.DataLoader(list(range(3))))
    assert [int(next(loader)) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_the_speed_of_a_loader_counts_the_wait_after_the_burst():
    burst = [0.001] * 7 + [0.8]
    assert mean_per_cycle(burst * 3, 8) == pytest.approx((0.807 / 8,) * 3)
    assert mean_per_cycle([0.1, 0.3], 8) == pytest.approx((0.2,))
    assert mean_per_cycle([0.1, 0.3, 0.2], 1) == (0.1, 0.3, 0.2)
