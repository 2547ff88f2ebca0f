"""A container with docker's 64 MB of shared memory: loader workers do not fit, and the training gets to its end."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.namespaces import unshared

# 4 MiB a sample: of 8 at once, two workers have more under way than 64 MiB
DATA = """
import torch
from torch.utils.data import Dataset

class Rows(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.full((1 << 20,), 0.1), torch.zeros(1)

def build_model():
    return torch.nn.Sequential(torch.nn.AvgPool1d(1 << 14), torch.nn.Linear(64, 1))
"""
CONFIG = {
    "model": {"target": "big:build_model"},
    "data": {"target": "big:Rows"},
    "loss": {"target": "torch.nn:MSELoss"},
    "optimizer": {"target": "torch.optim:SGD", "args": {"lr": 0.001}},
    "train": {"global_batch": 8, "precision": "fp32", "steps": 3},
}
SMALL = 'mount -t tmpfs -o size=64m none /dev/shm && exec "$@"'


def test_workers_that_fill_shared_memory_are_named_and_the_training_goes_on(tmp_path):
    unshared("-rm")
    (tmp_path / "big.py").write_text(DATA)
    (tmp_path / "cfg.yaml").write_text(json.dumps(CONFIG))
    line = ("train", "--model", "cfg.yaml", "--profile", "off", "--device", "cpu", "--plain", "--run-dir", "run")
    command = ["unshare", "-rm", "sh", "-c", SMALL, "sh", sys.executable, "-m", "gpudoc", *line, "--num-workers", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Shared memory is too small for the loader workers" in done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["steps"] == 3
    assert summary["rescues"]
