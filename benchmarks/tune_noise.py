"""The choices of `gpudoc tune` while other work runs: planted differences, beside busy loops or memory traffic.

    python benchmarks/tune_noise.py [--runs 20] [--loads 0,1,2,memory] [--results rows.jsonl] [--record FILE]

The step of `planted` takes 23 % less CPU time in a process with the exact allocator, so that this lever, which every
CPU tries, is worth 1.3 times the speed; that of `equal` takes the same. Each run is a whole `gpudoc tune --only speed`
with a separate journal, and makes one row of `--results`: a run that is cut off is repeated, and a run with a row is
not; rows of another commit do not count. Right: `exact` for `planted`, `default` for `equal`. Wrong and said:
the other answer, with the doubt on the first screen. Wrong and not said must not happen. Nothing but the answer is
searched: one batch, and an optimizer without its own lever.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from in_parts import Parts, commit

ROOT = Path(__file__).resolve().parents[1]
MODULE = """
import os, time, torch

class Net(torch.nn.Module):
    def __init__(self, exact_ms):
        super().__init__()
        self.ms = exact_ms if "MALLOC_MMAP_THRESHOLD_" in os.environ else 10.0
        self.last = torch.nn.Linear(8, 1)
    def forward(self, x):
        end = time.thread_time() + self.ms / 1e3
        while time.thread_time() < end:
            pass
        return self.last(x)

class Plain(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weights in group["params"]:
                weights -= group["lr"] * weights.grad

def planted():
    return Net(10.0 / 1.3)

def equal():
    return Net(10.0)

def data():
    return torch.utils.data.TensorDataset(torch.ones(512, 8), torch.full((512, 1), 100.0))
"""
CONFIG = """
model: {{target: "mine:{name}"}}
data: {{target: "mine:data"}}
loss: {{target: "torch.nn:MSELoss"}}
optimizer: {{target: "mine:Plain", args: {{lr: 1.0e-4}}}}
"""
WANTED = {"planted": "exact", "equal": "default"}
BUSY = "while True: pass"
TRAFFIC = "a = bytearray(256 << 20)\nb = bytearray(256 << 20)\nwhile True: a[:] = b"
LOADS = {"0": (), "1": (BUSY,), "2": (BUSY, BUSY), "memory": (TRAFFIC,)}


def search(name: str) -> dict[str, object]:
    """The choice of one search in a separate folder, whether it expressed doubt, and the seconds that it took."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "mine.py").write_text(MODULE)
        Path(folder, "cfg.yaml").write_text(CONFIG.format(name=name))
        command = [sys.executable, "-m", "gpudoc", "tune", "--model", "cfg.yaml", "--device", "cpu", "--only", "speed"]
        # if a product waits for a team of threads and one of them has no CPU, that outweighs the planted difference
        environment = {**os.environ, "XDG_DATA_HOME": folder, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*command, "--max-batch", "1", "--budget", "90s", "--json"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"a search ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    profile = json.loads(done.stdout)["profile"]
    return {
        "chosen": profile["settings"]["allocator"],
        "disturbed": profile["evidence"].get("disturbed_trials") or 0,
        "tried": [(row["name"], row.get("times"), row["kept"]) for row in profile["evidence"].get("variants", ())],
        "seconds": round(time.monotonic() - began, 1),
    }


def measure(parts: Parts, load: str, runs: int) -> None:
    """Run the searches that are still missing beside one load; both nets in turns."""
    with contextlib.ExitStack() as stack:
        for code in LOADS[load]:
            beside = stack.enter_context(subprocess.Popen([sys.executable, "-c", code]))
            stack.callback(beside.kill)
        for run in range(runs):
            for name in WANTED:
                if all(row["run"] != run for row in kept(parts, load, name)):
                    parts.add(beside=load, net=name, run=run, **search(name))


def kept(parts: Parts, load: str, name: str) -> list[dict]:
    """The rows of this commit for one net beside one load."""
    now = commit()
    return [row for row in parts.rows if (row["beside"], row["net"], row["commit"]) == (load, name, now)]


def line(rows: list[dict], load: str, name: str) -> str:
    """A line of the table."""
    both = [(row["chosen"] == WANTED[name], row["disturbed"] > 0) for row in rows]
    counts = (len(rows), sum(right for right, _ in both), both.count((False, True)), both.count((False, False)))
    median_s = sorted(row["seconds"] for row in rows)[len(rows) // 2]
    return f"| {load} | {name} | {' | '.join(map(str, counts))} | {sum(said for _, said in both)} | {median_s:.0f} s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--loads", default="0,1,2,memory")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    parts, loads = Parts(options.results), options.loads.split(",")
    table = ["| beside it | net | runs | right | wrong, and said | wrong, not said | said in doubt | a search |"]
    table += ["|" + "---|" * 8]
    print(*table, sep="\n", flush=True)
    try:
        for load in loads:
            measure(parts, load, options.runs)
            table += [line(kept(parts, load, name), load, name) for name in WANTED]
            print(*table[-len(WANTED) :], sep="\n", flush=True)
    except KeyboardInterrupt:
        sys.exit(f"interrupted; the same command goes on after {len(parts.rows)} rows of {options.results}")
    if options.record:
        options.record.write_text("\n".join([parts.about() + "; python benchmarks/tune_noise.py", "", *table, ""]))


if __name__ == "__main__":
    main()
