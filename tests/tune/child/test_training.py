import pytest
import torch

from gpudoc.train.ranks.protocol import Alone
from gpudoc.tune.child.samples import collect_samples
from gpudoc.tune.child.training import Trainee
from gpudoc.tune.trial.messages import Variant
from gpudoc.workload.build import load_workload
from tests.tune.planted import write_workload

VARIANTS = [
    Variant(),
    Variant(precision="bf16"),
    Variant(channels_last=True),
    Variant(fused=False),
    Variant(foreach=True),
    Variant(activation_checkpointing=True),
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_steps_learn_and_evaluation_and_checkpoints_change_nothing(tmp_path, variant, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    workload = load_workload(str(write_workload(tmp_path)))
    batch = collect_samples(workload).typical(16)
    trainee = Trainee(workload, variant, torch.device("cpu"))
    before = trainee.evaluate(batch)
    for _ in range(20):
        trainee.train([batch, batch])
    after = trainee.evaluate(batch)
    assert after < before
    trainee.capture_checkpoint()
    with trainee.writing_checkpoint():
        trainee.evaluate(batch)
    assert trainee.evaluate(batch) == after


def test_what_fails_in_a_step_is_raised_as_it_is(tmp_path, monkeypatch):
    """A trial judges failures by themselves, where training would shrink its batch."""
    monkeypatch.syspath_prepend(str(tmp_path))
    workload = load_workload(str(write_workload(tmp_path)))
    trainee = Trainee(workload, Variant(), torch.device("cpu"))
    batch = collect_samples(workload).typical(4)

    def short(*_, **__):
        raise MemoryError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "_amp_foreach_non_finite_check_and_unscale_", short)
        with pytest.raises(MemoryError, match="planted"):
            trainee.step([batch])
    trainee.step([batch])


class Recorded(Alone):
    """Two ranks that only note what is exchanged."""

    world = local_world = 2

    def __init__(self):
        super().__init__()
        self.calls = []

    def total(self, values):
        self.calls.append("total")
        return [2 * value for value in values]

    def vote(self, flags):
        self.calls.append("vote")
        return flags

    def begin_step(self):
        self.calls.append("begin")

    def reduce_gradients(self, parameters):
        self.calls.append("reduce")

    def accumulating(self, model, last):
        self.calls.append(f"accumulating, last: {last}")
        return super().accumulating(model, last)


def test_a_step_exchanges_what_train_exchanges_or_nothing_at_all(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    workload = load_workload(str(write_workload(tmp_path)))
    batch = collect_samples(workload).typical(4)
    ranks = Recorded()
    trainee = Trainee(workload, Variant(), torch.device("cpu"), ranks)
    before = trainee.evaluate(batch)
    once = ["total", "begin", "accumulating, last: True", "vote", "reduce"]
    for _ in range(2):
        trainee.step([batch])
        # in the first updates ranks also say whether the optimizer's state fits
        assert ranks.calls == [*once, "vote"]
        ranks.calls.clear()
    trainee.step([batch])
    assert ranks.calls == once
    ranks.calls.clear()
    for _ in range(20):
        trainee.step([batch], exchange=False)
    trainee.drain()
    # ranks that began a step in which gradients are exchanged would look for them at the next vote
    assert set(ranks.calls) == {"accumulating, last: False"}
    assert trainee.evaluate(batch) < before
