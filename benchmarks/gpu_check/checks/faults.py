"""Training that runs out of memory, loses memory to a neighbour, or is killed: it goes on, and exactly.

python -m benchmarks.gpu_check.checks.faults [--quick]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.gpu_check.model import Result

# four blocks that keep about 32 MiB a sample
NET = {"depth": 4, "spread": 4096}
SAMPLE_BYTES = 32 << 20
NEIGHBOUR = """
import sys, torch
kept = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
print("holds", flush=True)
sys.stdin.read()
"""
# how long a training may take to its first row of metrics
START_S = 90.0


def train(folder: Path, run: str, *arguments: str) -> list[str]:
    """The command of a training of the planted workload in `folder`."""
    line = [sys.executable, "-m", "gpudoc", "train", "--model", "cfg.yaml", "--device", "cuda:0", "--profile", "off"]
    return [*line, "--plain", "--no-preflight", "--run-dir", str(folder / run), *arguments]


def rescues(folder: Path, run: str) -> list[object]:
    """The rescues that a run's summary names."""
    found = json.loads((folder / run / "summary.json").read_text())["rescues"]
    assert isinstance(found, list)
    return found


def check_rescue(folder: Path, free_bytes: int, result: Result) -> None:
    """A batch of which a quarter fits is halved until it runs, and the run ends well."""
    batch = max(4, 4 * free_bytes // SAMPLE_BYTES)
    command = train(folder, "rescued", "--steps", "4", "--batch-size", str(batch), "--set", f"global_batch={batch}")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        result.failures.append(f"a training that runs out of memory is not rescued: {done.stderr.strip()[-500:]}")
        return
    found = rescues(folder, "rescued")
    result.facts["rescues"] = len(found)
    if not found:
        result.failures.append(
            f"a batch of {batch}, four times what the card has room for, ran without a lack of memory"
        )


def check_neighbour(folder: Path, free_bytes: int, result: Result) -> None:
    """Another process takes memory in the middle of a run that uses half of the card."""
    batch = max(2, round(0.4 * free_bytes / SAMPLE_BYTES))
    takes = min(4 << 30, free_bytes // 4)
    options = ("--steps", "40", "--batch-size", str(batch), "--set", f"global_batch={batch}", "--set", "log_every=1")
    training = subprocess.Popen(train(folder, "beside", *options), cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        until, rows = time.monotonic() + START_S, folder / "beside" / "metrics.jsonl"
        while not (rows.exists() and rows.stat().st_size) and training.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        neighbour = [sys.executable, "-c", NEIGHBOUR, str(takes)]
        with subprocess.Popen(neighbour, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            result.facts["the neighbour"] = "took its memory" if other.stdout.readline() else "found no memory"
            _, errors = training.communicate()
            other.kill()
        if training.returncode:
            result.failures.append(
                f"a training ends while another process takes {takes >> 20} MiB: {errors.strip()[-500:]}"
            )
    finally:
        training.kill()


def check_resume(folder: Path, result: Result) -> None:
    command = [sys.executable, "-m", "gpudoc", "train", "--model", "quickstart", "--device", "cuda:0", "--prove-resume"]
    command += ["--steps", "20", "--plain", "--run-dir", str(folder / "proof")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        text = (done.stdout + done.stderr).strip()
        result.failures.append(f"a training that is killed does not go on bit for bit: {text[-500:]}")


def main() -> None:
    from tests.tune.planted import write_workload

    result = Result()
    # asked and given back: the trainings have the card to themselves
    free_bytes = int(
        subprocess.run(
            [sys.executable, "-c", "import torch; print(torch.cuda.mem_get_info(0)[0])"],
            capture_output=True, text=True, check=True, env=os.environ,
        ).stdout
    )  # fmt: skip
    assert not torch.cuda.is_initialized()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count = 16 * max(16, free_bytes // SAMPLE_BYTES)
        write_workload(folder, net=NET, data={"count": count})
        check_rescue(folder, free_bytes, result)
        if "--quick" not in sys.argv:
            check_neighbour(folder, free_bytes, result)
            check_resume(folder, result)
    print(result.to_line())


if __name__ == "__main__":
    main()
