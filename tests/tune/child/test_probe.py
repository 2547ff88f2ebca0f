from typing import ClassVar

import pytest
import torch

from gpudoc.process.memory import read_process_memory
from gpudoc.profile.model import Loader
from gpudoc.train.ranks.protocol import Alone
from gpudoc.tune.child import pace, probe
from gpudoc.tune.child.probe import Prepared, Probe
from gpudoc.tune.child.samples import collect_samples, endless
from gpudoc.tune.child.training import Trainee
from gpudoc.tune.model.losses import LEAST_STEPS
from gpudoc.tune.trial.messages import TrialRequest
from gpudoc.tune.trial.wire import BatchMeasured, Fact, FirstLosses, RankPlace, TrialStage
from gpudoc.units import GIB, MIB
from gpudoc.workload.build import load_workload
from tests.tune.planted import write_workload


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

        Probe(prepared, request, RankPlace(device="cpu", limit_bytes=64 * GIB, **place), emit).run()
        return told

    return run


def stages(told):
    return [event.stage for event in told if isinstance(event, TrialStage)]


def batches(told):
    return [event.point.batch for event in told if isinstance(event, BatchMeasured)]


def test_calibration_goes_up_to_the_cap_and_tells_each_point(events):
    assert batches(events(TrialRequest(kind="calibrate", batches=(50,)), cap=40))[:3] == [1, 2, 4]
    assert batches(events(TrialRequest(kind="calibrate", batches=(50,)), cap=40))[-1] == 40


def test_calibration_ends_when_its_time_is_over(events):
    assert batches(events(TrialRequest(kind="calibrate", batches=(500,)), cap=500, stop_s=0.0)) == [1]


def test_the_steady_script_in_its_order(events):
    told = events(TrialRequest(kind="steady", batches=(100,), steps=9))
    assert stages(told) == ["build", "train", "partial batch", "eval", "train", "checkpoint", "steady"]
    facts = {event.name: event.value for event in told if isinstance(event, Fact)}
    assert facts == {"settled": 1, "steady_steps": 9, "growth_bytes_per_step": 0.0}
    assert "partial batch" not in stages(events(TrialRequest(kind="steady", batches=(128,), steps=1)))


def facts_of(told):
    return {event.name: event.value for event in told if isinstance(event, Fact)}


@pytest.mark.parametrize(("fault", "alike"), [(None, 1.0), ("leak", 0.0), ("raise", 0.0)])
def test_small_steps_of_a_workload_are_compared_in_a_trial_of_their_own(tmp_path, monkeypatch, fault, alike):
    monkeypatch.syspath_prepend(str(tmp_path))
    workload, told = load_workload(str(write_workload(tmp_path, fault=fault))), []
    prepared = Prepared(workload=workload, samples=collect_samples(workload), eval_samples=None, num_threads=1)
    request = TrialRequest(kind="alike", batches=(2,), steps=25)
    Probe(prepared, request, RankPlace(device="cpu", limit_bytes=64 * GIB), told.append).run()
    assert (stages(told), facts_of(told)) == (["build", "alike"], {"alike": alike})


def test_few_steady_steps_are_enough_while_memory_stays_as_it_is(events, monkeypatch):
    request = TrialRequest(kind="steady", batches=(8,), steps=20, enough=5)
    monkeypatch.setattr(Probe, "_resting_bytes", lambda probe: 100 * MIB)
    # the step beside the checkpoint is the first of the five
    assert facts_of(events(request))["steady_steps"] == 4
    sizes = iter(range(100, 200))
    monkeypatch.setattr(Probe, "_resting_bytes", lambda probe: next(sizes) * MIB)
    with pytest.raises(probe.ProbeStoppedError, match=r"memory grows by 1.00 MiB"):
        events(request)
    late = iter([100] * 4 + [110] * 31)
    monkeypatch.setattr(Probe, "_resting_bytes", lambda probe: next(late) * MIB)
    assert facts_of(events(request))["steady_steps"] == 20
    # only the step beside the checkpoint left memory otherwise
    after = iter([100] * 2 + [110] * 33)
    monkeypatch.setattr(Probe, "_resting_bytes", lambda probe: next(after) * MIB)
    assert facts_of(events(request))["steady_steps"] == 5


def test_a_fit_with_much_room_leaves_the_other_batches_for_when_it_goes_on(events, monkeypatch, tmp_path):
    orders = tmp_path / "steps"
    orders.write_text("20 5")
    monkeypatch.setattr(Probe, "_wait", lambda probe: None)
    monkeypatch.setattr(Probe, "_resting_bytes", lambda probe: 100 * MIB)
    request = TrialRequest(kind="fit", batches=(100,), steps=3, stay=True)
    order = ["build", "train", "train", "partial batch", "eval", "checkpoint", "steady"]
    assert stages(events(request, cap=101, orders=str(orders))) == order
    # at the cap such a batch may be the answer
    order = ["build", "train", "partial batch", "eval", "train", "checkpoint", "steady"]
    told = events(request, cap=100, orders=str(orders))
    assert (stages(told), facts_of(told)["steady_steps"]) == (order, 4)
    monkeypatch.setattr(probe, "is_roomy", lambda first, before, limit_bytes: False)
    assert stages(events(request, cap=101, orders=str(orders))) == order


def test_a_fit_meets_the_other_batches_between_its_steps_and_all_of_them_beside_the_slack(events, monkeypatch):
    """As much as training wanders by is kept free from the first step to the last one after a checkpoint."""
    monkeypatch.setattr(probe, "_WANDERING_BYTES", 512 * MIB)
    held, before = {}, read_process_memory().data_bytes

    def seen(event):
        if isinstance(event, TrialStage):
            held[event.stage] = read_process_memory().data_bytes

    events(TrialRequest(kind="steady", batches=(100,), steps=1), seen=seen)
    assert list(held) == ["build", "train", "partial batch", "eval", "checkpoint", "steady"]
    assert min(held.values()) - before > 400 * MIB
    assert stages(events(TrialRequest(kind="fit", batches=(100,), steps=2)))[1:] == [
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
    monkeypatch.setattr(probe.limits, "enforce", lambda limit_bytes, device: given.append(limit_bytes - 64 * GIB))
    monkeypatch.setattr(probe.signal, "pthread_sigmask", lambda how, signals: None)
    for request in (TrialRequest(kind="joint", batches=(8,), feed=Loader()), TrialRequest(kind="fit", batches=(8,))):
        probe.run_probe(prepared, request, RankPlace(device="cpu", limit_bytes=64 * GIB), lambda event: None)
    assert given == [prepared.kept_bytes, 0]
    assert given[0] > 0


def test_stacks_that_a_fork_left_behind_are_held_since_training_has_them(tmp_path, monkeypatch):
    """NumPy's OpenBLAS has a thread for each further CPU, and ends them before every fork."""
    monkeypatch.syspath_prepend(str(tmp_path))
    workload, held = load_workload(str(write_workload(tmp_path))), {}
    monkeypatch.setattr(probe.limits, "enforce", lambda limit_bytes, device: None)
    monkeypatch.setattr(probe.signal, "pthread_sigmask", lambda how, signals: None)
    here, stack = probe.num_threads(), probe.stack_bytes()
    for left in (0, 40):
        prepared = Prepared(
            workload=workload,
            samples=collect_samples(workload),
            eval_samples=None,
            num_threads=1,
            num_started=here + left,
        )
        assert prepared.left_bytes == left * stack

        def seen(event, left=left):
            if isinstance(event, TrialStage) and event.stage == "build":
                held[left] = read_process_memory().data_bytes

        probe.run_probe(
            prepared, TrialRequest(kind="fit", batches=(8,)), RankPlace(device="cpu", limit_bytes=None), seen
        )
    assert held[40] - held[0] > 30 * stack


def test_every_size_is_timed_upward_and_downward(events):
    told = events(TrialRequest(kind="speed", batches=(2, 4), seconds_per_batch=0.01))
    assert batches(told) == [2, 4, 4, 2]
    assert len(told[-1].point.step_s) >= 2


def test_a_variant_begins_with_its_first_losses_and_is_then_timed(events):
    told = events(TrialRequest(kind="variant", batches=(4,), seconds_per_batch=0.01))
    assert stages(told) == ["build", "first steps", "speed", "speed"]
    assert batches(told) == [4, 4]
    others = events(TrialRequest(kind="variant", batches=(4,), seconds_per_batch=0.01, seed=1))
    # slow steps are fewer; nothing in this model draws random numbers
    first, again = ([e.losses[:LEAST_STEPS] for e in each if isinstance(e, FirstLosses)] for each in (told, others))
    assert first == again
    assert len(first[0]) == LEAST_STEPS


class Probationer(Alone):
    """Tells when it may reduce in backward, in the order of the steps."""

    calls: ClassVar[list[str]] = []

    def end_probation(self):
        self.calls.append("end")

    def accumulating(self, model, last):
        raise AssertionError("one rank accumulates nothing")


@pytest.mark.parametrize(
    ("request_", "before"),
    [
        (TrialRequest(kind="speed", batches=(4,), seconds_per_batch=0.01), 0),
        (TrialRequest(kind="joint", batches=(4,), feed=Loader(), seconds_per_batch=0.01), 0),
        (TrialRequest(kind="fit", batches=(4,), steps=3), 1),
        (TrialRequest(kind="steady", batches=(4,), steps=1), 1),
    ],
)
def test_speed_is_that_of_a_run_under_way_and_memory_that_of_its_first_steps_too(events, monkeypatch, request_, before):
    monkeypatch.setattr(probe, "Alone", Probationer)
    monkeypatch.setattr(Probationer, "calls", [])
    for name in ("step", "train"):
        real = getattr(Trainee, name)

        def told(*args, real=real, **more):
            Probationer.calls.append("step")
            return real(*args, **more)

        monkeypatch.setattr(Trainee, name, told)
    events(request_)
    assert Probationer.calls.index("end") == before
    assert Probationer.calls.count("step") > before + 1


@pytest.mark.standin
def test_short_steps_on_a_gpu_are_timed_in_blocks_from_pinned_batches(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    workload = load_workload(str(write_workload(tmp_path)))
    prepared = Prepared(workload=workload, samples=collect_samples(workload), eval_samples=None, num_threads=1)
    steps, waits, kinds = [], [], set()
    step, wait = Trainee.step, torch.cuda.synchronize

    def counted(trainee, batches, **more):
        kinds.add((batches[0][0].device.type, batches[0][0].is_pinned()))
        steps.append(1)
        step(trainee, batches, **more)

    monkeypatch.setattr(Trainee, "step", counted)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *args: (waits.append(1), wait(*args)))
    # the steps that wake the card are each waited for, and none of them is timed
    monkeypatch.setattr(pace, "WAKE_S", 0.0)
    # as of steps that are short, however busy this machine is
    monkeypatch.setattr(probe, "steps_per_block", lambda step_s: 20)
    request = TrialRequest(kind="speed", batches=(4,), seconds_per_batch=0.5)
    Probe(prepared, request, RankPlace(device="cuda:0", limit_bytes=None), lambda event: None).run()
    assert kinds == {("cpu", True)}
    assert len(steps) > 2 * len(waits)


def test_steps_fed_by_a_real_loader(events):
    told = events(TrialRequest(kind="joint", batches=(8,), feed=Loader(), seconds_per_batch=0.05))
    assert batches(told) == [8]
    assert len(told[-1].point.step_s) >= 3


def test_a_loader_goes_on_epoch_after_epoch():
    loader = endless(torch.utils.data.DataLoader(list(range(3))))
    assert [int(next(loader)) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
