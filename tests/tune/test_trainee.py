import pytest
import torch

from gpudoc.tune.samples import collect_samples
from gpudoc.tune.trainee import Trainee
from gpudoc.tune.trial import Variant
from gpudoc.workload.build import load_workload

from .planted import write_workload

VARIANTS = [
    Variant(),
    Variant(precision="bf16"),
    Variant(channels_last=True),
    Variant(fused=False),
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
