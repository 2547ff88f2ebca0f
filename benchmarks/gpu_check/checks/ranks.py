"""All GPUs of this machine at once under torchrun: our trainer, and what NCCL takes of each card for its buffers.

python -m benchmarks.gpu_check.checks.ranks
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.gpu_check.model import Comparison, Result
from gpudoc.units import MIB

# one rank: the bytes that came into use by the first exchange
BUFFERS = """
import os, torch, torch.distributed as dist
rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
block = torch.ones(1 << 20, device=device)
torch.cuda.synchronize()
before = torch.cuda.mem_get_info()[0]
dist.init_process_group("nccl", device_id=device)
dist.all_reduce(block)
torch.cuda.synchronize()
taken = torch.tensor([before - torch.cuda.mem_get_info()[0]], device=device)
dist.all_reduce(taken, op=dist.ReduceOp.MAX)
if rank == 0:
    print("TAKEN", taken.item())
assert block[0].item() == dist.get_world_size()
dist.destroy_process_group()
"""
STEPS = "12"


def torchrun(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program as one rank per GPU."""
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    command = [*line, str(torch.cuda.device_count()), *arguments]
    # what they say is the step's: the runner keeps it also of ranks that never end
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)


def main() -> None:
    result = Result(facts={"gpus": torch.cuda.device_count()})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "buffers.py").write_text(BUFFERS)
        asked = torchrun(folder, "buffers.py")
        found = [line.split()[1] for line in asked.stdout.splitlines() if line.startswith("TAKEN ")]
        if asked.returncode or not found:
            result.failures.append("the ranks do not exchange one tensor; the output of this step says why")
        else:
            # the plan adds nothing for them yet
            result.comparisons.append(
                Comparison(name="NCCL's buffers in one rank", guessed=None, measured=int(found[0]) / MIB)
            )
        arguments = ("train", "--model", "quickstart", "--device", "cuda", "--profile", "off", "--steps", STEPS)
        trained = torchrun(folder, "-m", "gpudoc", *arguments, "--plain", "--run-dir", "run")
        if trained.returncode:
            result.failures.append(
                f"train under torchrun ends with exit status {trained.returncode}; the output of this step says why"
            )
        else:
            summary = json.loads((folder / "run" / "summary.json").read_text())
            result.facts["steps"] = summary.get("steps", STEPS)
    print(result.to_line())


if __name__ == "__main__":
    main()
