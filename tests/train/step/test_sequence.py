"""The order of a step is one: what a trial of tune allocates and frees is what training does, block by block."""

from __future__ import annotations

import json

import pytest
import torch
from torch.utils.data import default_collate

from gpudoc.tune.trial.messages import Variant
from gpudoc.workload.build import load_workload
from tests.train.step.allocations import of_training, of_trial

MODULE = """
import torch
from torch import nn

class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        return torch.full((3, 6, 6), index / 48), torch.tensor(index % 5)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return x + torch.relu(self.norm(self.mix(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(nn.functional.dropout(x.mean((2, 3)), 0.1, self.training))
"""
# settings of a step: (what training is told, the variant of the trial, the micro batches of a step, the config)
CASES = {
    "plain": ({}, {}, 1, {}),
    "bf16": ({"precision": "bf16"}, {"precision": "bf16"}, 1, {}),
    "accumulation": ({"micro_batch": 2}, {}, 3, {}),
    "recomputation": ({"activation_checkpointing": True}, {"activation_checkpointing": True}, 1, {}),
    "a part recomputed": ({"activation_checkpointing": "selective"}, {"activation_checkpointing": "selective"}, 1, {}),
    "channels last": ({"channels_last": True}, {"channels_last": True}, 1, {}),
    "clip": ({}, {}, 1, {"train": {"grad_clip": 0.5}}),
    "not fused": ({"fused": False}, {"fused": False}, 1, {}),
    "momentum": ({}, {}, 1, {"optimizer": {"target": "torch.optim:SGD", "args": {"lr": 0.1, "momentum": 0.9}}}),
    "no fused version": ({}, {}, 1, {"optimizer": {"target": "torch.optim:RMSprop", "args": {"lr": 0.01}}}),
    "schedule": ({}, {}, 1, {"schedule": {"name": "cosine", "warmup_steps": 2}}),
    "all at once": (
        {"precision": "bf16", "micro_batch": 3, "activation_checkpointing": True, "channels_last": True},
        {"precision": "bf16", "activation_checkpointing": True, "channels_last": True},
        2,
        {"train": {"grad_clip": 0.5}, "schedule": {"name": "linear", "warmup_steps": 1}},
    ),
}
GLOBAL_BATCH = 6


def write_config(folder, changes):
    """The config of the small net in `folder`, with its module, under these changes."""
    (folder / "sequence_model.py").write_text(MODULE)
    config = {
        "model": {"target": "sequence_model:Net"},
        "data": {"target": "sequence_model:Images"},
        "loss": {"target": "torch.nn:CrossEntropyLoss"},
        "optimizer": {"target": "torch.optim:AdamW", "args": {"lr": 0.01}},
        **changes,
        "train": {"global_batch": GLOBAL_BATCH, "precision": "fp32", **changes.get("train", {})},
    }
    (folder / "cfg.yaml").write_text(json.dumps(config))
    return folder / "cfg.yaml"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_trial_allocates_and_frees_what_training_does_in_the_same_order(case, tmp_path, monkeypatch):
    flags, variant, num_micros, changes = case
    monkeypatch.syspath_prepend(str(tmp_path))
    config = write_config(tmp_path, changes)
    trained = of_training(config, {"micro_batch": GLOBAL_BATCH, **flags}, monkeypatch)
    workload = load_workload(str(config))
    samples = [workload.dataset[index] for index in range(GLOBAL_BATCH // num_micros)]
    batches = [default_collate(samples) for _ in range(num_micros)]
    tried = of_trial(workload, Variant(**variant), batches, monkeypatch)
    first = next((at for at, (a, b) in enumerate(zip(trained, tried, strict=False)) if a != b), None)
    assert first is None, f"at {first}: {trained[max(0, first - 5) :][:10]} and {tried[max(0, first - 5) :][:10]}"
    assert len(trained) == len(tried)
    assert sum(size > 0 for size in trained) > 100
    assert torch.is_grad_enabled()
