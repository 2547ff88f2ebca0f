from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, report_of

_TABLE = """
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla P40           On   | 00000000:02:00.0 Off |                    0 |
| N/A   31C    P8    11W / 250W |  {used:>7}MiB / 22919MiB |    {load:>3}%      Default |
+-------------------------------+----------------------+----------------------+
"""


def _named(text: str) -> list[str]:
    return [f.id for f in report_of(text).findings if f.severity != "info"]


def test_a_card_that_nobody_uses_while_training_runs():
    text = "python train.py runs but an epoch takes 9 hours, this is nvidia-smi:" + _TABLE.format(used=71, load=0)
    assert first(text) == "training_on_cpu", [(f.id, f.confidence) for f in report_of(text).findings]


@pytest.mark.parametrize(
    ("said", "used", "load"),
    [
        ("python train.py runs but an epoch takes 9 hours", 9120, 0),
        ("python train.py runs but an epoch takes 9 hours", 71, 63),
        ("this is the machine that I want to buy for training", 71, 0),
        ("nvidia-smi before training, which then takes 9 hours per epoch", 71, 0),
    ],
)
def test_a_card_that_is_used_or_that_nobody_complains_of(said, used, load):
    assert "training_on_cpu" not in _named(said + _TABLE.format(used=used, load=load))


def test_one_core_that_does_the_work_of_many_workers():
    text = "Training is slow: only one cpu core is used to load the data, no matter how many workers I set"
    assert "dataloader_bottleneck" in _named(text)


def test_one_worker_that_keeps_one_core_busy_is_as_it_should_be():
    assert _named("Training uses only one core of the CPU and the GPU is at 98 %. Very nice!") == []
