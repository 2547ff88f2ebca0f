"""Ranks that are killed, and ranks that run out of memory: does every run come back, and to the same weights?

python campaigns/train_ranks.py [--kills 8] [--ooms 50] [--record FILE]

Two gloo ranks under `gpudoc train --gpus 2`. A kill is SIGKILL to a random rank at a random step. A run of OOMs raises
torch's CPU allocator error on one random rank in nine random forwards; each must halve the micro batch on both. The
weights at the end are compared with those of one undisturbed process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import psutil
import torch
from safetensors.torch import load_file

import gpudoc

ROOT = Path(__file__).resolve().parents[1]
STEPS = 40
PER_RUN = 9  # from 512 samples down to one
HANG_SECONDS = 300
MODULE = """
import os, random, time
import torch

class Points(torch.utils.data.Dataset):
    def __init__(self, sleep=0.0):
        self.x = torch.randn(3000, 6, generator=torch.Generator().manual_seed(1))
        self.sleep = sleep
    def __len__(self):
        return len(self.x)
    def __getitem__(self, index):
        if self.sleep:
            time.sleep(self.sleep)
        return self.x[index], self.x[index].sum(0, keepdim=True)

class Net(torch.nn.Module):
    def __init__(self, plan=()):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        self.plan = {tuple(item) for item in plan}
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        if (int(os.environ.get("RANK", "-1")), self.calls) in self.plan:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")
        return self.body(x)
"""


def write_config(place, name, *, sleep=0.0, plan=(), batch=1024):
    config = {
        "model": {"target": "ranked:Net", "args": {"plan": [list(item) for item in plan]}},
        "data": {"target": "ranked:Points", "args": {"sleep": sleep}},
        "loss": {"target": "torch.nn:MSELoss"},
        "optimizer": {"target": "torch.optim:SGD", "args": {"lr": 0.01, "momentum": 0.9}},
        "train": {"global_batch": batch, "reference_batch": batch, "steps": STEPS, "log_every": 1,
                  "checkpoint_every": 5, "precision": "fp32"},
    }  # fmt: skip
    (place / name).write_text(json.dumps(config))
    return name


def start(place, config, run, *arguments):
    command = [sys.executable, "-m", "gpudoc", "train", "--model", config, "--device", "cpu", "--profile", "off"]
    command += ["--run-dir", run, "--plain", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    log = (place / f"{run}.log").open("w")
    return subprocess.Popen(command, cwd=place, env=environment, stdout=log, stderr=log)


def finish(process):
    """The exit code; None when it hung."""
    try:
        return process.wait(HANG_SECONDS)
    except subprocess.TimeoutExpired:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        return None


def weights(place, run):
    return load_file(place / run / "checkpoints" / f"step-{STEPS}" / "model.safetensors")


def distance(first, second):
    return max((first[name] - second[name]).abs().max().item() for name in first)


def kill_one(place, number, alone, draw):
    config, run = write_config(place, f"k{number}.yaml", sleep=0.002, batch=64), f"kill-{number}"
    process = start(place, config, run, "--gpus", "2")
    step, rank = draw.randrange(1, STEPS - 5), draw.randrange(2)
    metrics = place / run / "metrics.jsonl"
    until = time.monotonic() + HANG_SECONDS
    while not (metrics.exists() and len(metrics.read_text().splitlines()) >= step) and time.monotonic() < until:
        time.sleep(0.02)
    for child in psutil.Process(process.pid).children(recursive=True):
        if child.environ().get("RANK") == str(rank):
            child.kill()
            break
    code = finish(process)
    if code != 0:
        return {"came_back": False, "code": code, "step": step, "rank": rank}
    resumed = json.loads((place / run / "summary.json").read_text())["resumed_from"]
    off = distance(weights(place, run), alone)
    return {"came_back": True, "code": 0, "step": step, "rank": rank, "resumed": resumed, "distance": off}


def run_out_of_memory(place, number, alone, draw):
    """Nine errors in one run: before the n-th, the micro batch is 512 / 2^n, and a step takes 2^n forwards."""
    plan, call = [], 0
    for halvings in range(PER_RUN):
        micro = max(1, 512 >> halvings)
        call += draw.randrange(1, 2 * max(1, 512 // micro))
        plan.append((draw.randrange(2), call))
    # the rank that does not raise goes on to the end of its step, so both are asked at the calls of either
    config = write_config(place, f"o{number}.yaml", plan=plan)
    run = f"oom-{number}"
    code = finish(start(place, config, run, "--gpus", "2"))
    if code is None:
        return {"hung": True, "rescues": 0, "distance": None}
    summary = json.loads((place / run / "summary.json").read_text())
    off = distance(weights(place, run), alone) if code == 0 else None
    return {"hung": False, "code": code, "rescues": len(summary["rescues"]), "distance": off}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--ooms", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "ranked.py").write_text(MODULE)
        kills, ooms = [], []
        for batch, count in ((64, options.kills), (1024, options.ooms)):
            if count:
                assert finish(start(place, write_config(place, f"a{batch}.yaml", batch=batch), f"alone-{batch}")) == 0
        for number in range(options.kills):
            kills.append(kill_one(place, number, weights(place, "alone-64"), draw))
            print(kills[-1], file=sys.stderr, flush=True)
        number = 0
        while sum(row["rescues"] for row in ooms) < options.ooms and number < options.ooms:
            ooms.append(run_out_of_memory(place, number, weights(place, "alone-1024"), draw))
            print(ooms[-1], file=sys.stderr, flush=True)
            number += 1
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    where = f"{os.cpu_count()} CPUs, Python {platform.python_version()}, torch {torch.__version__}, gpudoc "
    where += f"{gpudoc.__version__} at {asked.stdout.strip()}; two gloo ranks, {STEPS} steps each."
    lines = [
        f"# Ranks killed and out of memory, {date.today()}",
        "",
        where,
        "",
    ]
    if kills:
        back = [row for row in kills if row["came_back"]]
        furthest = max((row["distance"] for row in back), default=float("nan"))
        lines.append(
            f"- SIGKILL to a random rank at a random step: {len(back)} of {len(kills)} runs came back and finished; "
            f"largest difference of a weight from an undisturbed process {furthest:.1e}"
        )
    if ooms:
        done = [row for row in ooms if row["distance"] is not None]
        furthest = max((row["distance"] for row in done), default=float("nan"))
        lines.append(
            f"- one-rank OOM: {sum(row['rescues'] for row in ooms)} rescues in {len(ooms)} runs, "
            f"{sum(row['hung'] for row in ooms)} hangs, {len(done)} runs finished; largest difference {furthest:.1e}"
        )
    text = "\n".join(lines) + "\n"
    if options.record:
        options.record.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
