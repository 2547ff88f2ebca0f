"""The speed that `tune -- COMMAND` sees of a script that never waits for its GPU, beside a wait at both ends.

    python -m benchmarks.gpu_check.checks.timing [--compile]

The script copies without blocking, reads nothing of the GPU, and with `--compile` replays graphs: a clock of the host
would see how fast work is queued.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.gpu_check.model import Comparison, Result

# the modelled clock of a stand-in needs no more steps than a look at the script does
SCRIPT = """
import json, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH, LENGTH, BATCH, STEPS = 4096, 1024, 8, 48
half = torch.bfloat16 if torch.cuda.get_device_capability() >= (8, 0) else torch.float16

class Rows(Dataset):
    def __len__(self): return STEPS * BATCH
    def __getitem__(self, index): return torch.full((LENGTH, 64), 0.1)

net = nn.Sequential(nn.Linear(64, WIDTH), *[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(4)]).cuda()
forward = torch.compile(net, mode="reduce-overhead") if "--compile" in sys.argv else net
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)

def step(x):
    with torch.autocast("cuda", dtype=half):
        loss = forward(x.cuda(non_blocking=True)).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

# the card from rest to its clocks, as tune leaves out that second too
began = time.perf_counter()
while time.perf_counter() - began < 1.5:
    for _ in range(4):
        step(torch.zeros(BATCH, LENGTH, 64).pin_memory())
    torch.cuda.synchronize()
began = time.perf_counter()
for x in DataLoader(Rows(), BATCH, pin_memory=True):
    step(x)
torch.cuda.synchronize()
print(json.dumps((time.perf_counter() - began) / STEPS))
"""
# what a script that keeps its GPU busy may be said to wait for its data
WAITS = 0.1


def main() -> None:
    result = Result()
    options = [one for one in sys.argv[1:] if one == "--compile"]
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "train.py").write_text(SCRIPT)
        command = [sys.executable, "train.py", *options]
        alone = subprocess.run(command, cwd=name, capture_output=True, text=True, check=False)
        if alone.returncode:
            sys.exit(f"the script failed: {alone.stderr[-2000:]}")
        own_s = float(json.loads(alone.stdout))
        tune = [sys.executable, "-m", "gpudoc", "tune", "--only", "look", "--json", "--in-place", "--", *command]
        looked = subprocess.run(tune, cwd=name, capture_output=True, text=True, check=False, env=os.environ)
        if looked.returncode:
            sys.exit(f"tune failed: {looked.stderr[-2000:]}")
        script = json.loads(looked.stdout)["script"]
    result.comparisons.append(
        Comparison(
            name="a step of an asynchronous script, as tune times it and with a wait at both ends",
            guessed=script["step_s"] * 1e3, measured=own_s * 1e3, unit="ms", low=0.97, high=1.03,
        )
    )  # fmt: skip
    waits = script["wait_share"]
    result.facts["wait_share"] = waits
    if waits > WAITS:
        result.failures.append(
            f"tune says that a script whose GPU is always busy waits {waits:.0%} of its time for data"
        )
    print(result.to_line())


if __name__ == "__main__":
    main()
