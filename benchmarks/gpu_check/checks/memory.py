"""The batch that tune names, run for many steps by train and by a bare loop: it fits, and a tenth more does not.

    python -m benchmarks.gpu_check.checks.memory [--quick]

With each allocator that PyTorch has; `--quick` takes the default one alone.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from benchmarks.gpu_check.checks.faults import NET, rescues
from benchmarks.gpu_check.model import Result, error_line
from gpudoc import facts
from gpudoc.doctor.card_memory import share_of_card
from gpudoc.process.shortage import Shortage, shortage_in
from gpudoc.units import GIB

ALLOCATORS = {"default": "", "expandable": "expandable_segments:True", "asynchronous": "backend:cudaMallocAsync"}
STEPS, QUICK_STEPS = 200, 20
# the same net as a person would train it, without anything of gpudoc
BARE = f"""
import sys
import torch
from planted_work import Net

batch, steps, limit_bytes = map(int, sys.argv[1:])
if limit_bytes:
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / torch.cuda.get_device_properties(0).total_memory))
net = Net(**{NET!r}).cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
for _ in range(steps):
    x, y = torch.full((batch, 256), 0.1).cuda(), (torch.arange(batch) % 10).cuda()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
torch.cuda.synchronize()
"""


class Place:
    """A folder with the workload, and the environment with one allocator."""

    def __init__(self, folder: Path, setting: str, steps: int) -> None:
        from tests.tune.planted import write_workload

        self.folder, self.steps = folder, steps
        # where CUDA would go on past what tune leaves to others, the bare loop lives under tune's limit; 0 is none
        self.limit_bytes = 0
        self._environment: Mapping[str, str] = {
            **os.environ,
            "XDG_DATA_HOME": str(folder / "data"),
            "PYTORCH_CUDA_ALLOC_CONF": setting,
        }
        write_workload(folder, net=NET, data={"count": 100_000}, precision="fp32", activation_checkpointing="off")
        (folder / "bare.py").write_text(BARE)

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, *command]
        return subprocess.run(line, cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False)

    def bare(self, batch: int, steps: int) -> str:
        """What the bare loop says at its end where it fails, '' where it runs."""
        done = self._run("bare.py", str(batch), str(steps), str(self.limit_bytes))
        return "" if done.returncode == 0 else done.stderr.strip() or f"exit status {done.returncode}"

    def tune(self) -> subprocess.CompletedProcess[str]:
        """The search for the largest batch, which writes a profile."""
        options = ("--only", "batch", "--goal", "largest", "--budget", "60s", "--out", "profile.yaml", "--fresh")
        return self._run("-m", "gpudoc", "tune", "--model", "cfg.yaml", "--device", "cuda:0", *options)

    def train(self) -> subprocess.CompletedProcess[str]:
        """Our trainer with the profile."""
        options = ("--steps", str(self.steps), "--run-dir", "run", "--no-preflight", "--plain")
        line = ("train", "--model", "cfg.yaml", "--profile", "profile.yaml", "--device", "cuda:0")
        return self._run("-m", "gpudoc", *line, *options)


def check(allocator: str, place: Place, result: Result, is_shared: bool = False) -> None:
    """Tune, train and the bare loop with one allocator; `is_shared`: tune leaves others a part of this card."""
    refused = place.bare(1, 1)
    if refused:
        result.facts[f"allocator {allocator}"] = f"does not run here: {error_line(refused)}"
        if allocator == "default":
            result.failures.append(f"the bare loop does not run with one sample: {error_line(refused)}")
        return
    tuned = place.tune()
    if tuned.returncode:
        result.failures.append(f"tune failed with the {allocator} allocator: {error_line(tuned.stderr)}")
        return
    evidence = yaml.safe_load((place.folder / "profile.yaml").read_text())["evidence"]
    largest = int(evidence["largest_batch"])
    result.facts[f"largest batch, {allocator}"] = largest
    if is_shared:
        place.limit_bytes = int(evidence["memory_limit_bytes"])
    trained = place.train()
    if trained.returncode:
        result.failures.append(f"train fails at the batch that tune named, {largest}: {error_line(trained.stderr)}")
    elif rescues(place.folder, "run"):
        result.failures.append(f"train needs a rescue at the batch that tune named with {allocator}, {largest}")
    failed = place.bare(largest, place.steps)
    if failed:
        result.failures.append(
            f"the batch that tune named with the {allocator} allocator, {largest}, does not run for "
            f"{place.steps} steps in a bare loop: {error_line(failed)}"
        )
    more = math.ceil(1.1 * largest)
    beyond = place.bare(more, 6)
    if not beyond:
        result.failures.append(
            f"tune named a batch of {largest} with the {allocator} allocator, and a bare loop runs with {more}"
        )
    elif shortage_in(beyond) not in (Shortage.DEVICE, Shortage.WORKSPACE):
        result.failures.append(f"a batch of {more} ends in something other than a lack of memory: {error_line(beyond)}")


def main() -> None:
    is_quick = "--quick" in sys.argv
    result = Result()
    is_shared = share_of_card(GIB, 0, facts.collect(quick=True)).is_enforced
    for allocator in ("default",) if is_quick else ALLOCATORS:
        with tempfile.TemporaryDirectory() as name:
            place = Place(Path(name), ALLOCATORS[allocator], QUICK_STEPS if is_quick else STEPS)
            check(allocator, place, result, is_shared)
    print(result.to_line())


if __name__ == "__main__":
    main()
