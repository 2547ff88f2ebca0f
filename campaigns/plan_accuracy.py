"""Predicted against real peaks on this CPU, the line in the batch, and what a plan costs; writes a dated record.

python campaigns/plan_accuracy.py [--parts accuracy,cost] [--scale 2] [--only gpt2,bert] [--record]
Real peaks are tensor bytes as the profiler's memory events count them: an instrument that shares no code with the plan.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpudoc.plan.memory import join  # noqa: E402
from gpudoc.plan.planning import TRACED_AT, traced  # noqa: E402
from gpudoc.plan.tracing import Recipe, record  # noqa: E402
from gpudoc.stats import median, quantile  # noqa: E402
from tests.plan.measure import measured_peak  # noqa: E402
from tests.plan.zoo import GPT, mlp, recipe, recipes, tokens  # noqa: E402

BATCHES = (8, 16, 32)
CONVOLUTIONAL = ("resnet", "unet", "vit")


def accuracy(scale: int, only: list[str]) -> list[dict[str, object]]:
    """One row per model, precision and batch: real, predicted, error; the model is traced at two small batches only."""
    rows: list[dict[str, object]] = []
    for precision in ("fp32", "bf16"):
        for name, made in recipes(precision, scale).items():
            if only and name not in only:
                continue
            model = join([record(made, batch) for batch in TRACED_AT], "cpu")
            for batch in BATCHES:
                real, plan = measured_peak(made, batch), model.peak_bytes(batch)
                error = plan / real - 1
                rows.append(
                    {"model": name, "precision": precision, "batch": batch, "real": real, "plan": plan, "error": error}
                )
                print(f"{precision} {name:14} {batch:4} {real:13,} {plan:13,} {error:+8.3%}", flush=True)
    return rows


def line_errors() -> dict[str, dict[str, float]]:
    """How far the lines through the two batches that the program traces are from a trace at batch 64 and at 512."""
    errors = {}
    for name, made in recipes("fp32").items():
        model = join([record(made, batch) for batch in TRACED_AT], "cpu")
        errors[name] = {str(n): model.peak_bytes(n) / record(made, n).peak_bytes() - 1 for n in (64, 512)}
    return errors


class SevenBlock(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.RMSNorm(width), nn.RMSNorm(width), heads
        self.mix, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        size, rows, width = x.shape
        parts = self.mix(self.norm1(x)).view(size, rows, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(size, rows, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Seven(nn.Module):
    """7 B parameters in the shape of Llama 2: 32 blocks of 4096, hidden 11008, 32,000 words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(32000, 4096)
        self.blocks = nn.ModuleList(SevenBlock(4096, 32, 11008) for _ in range(32))
        self.norm, self.head = nn.RMSNorm(4096), nn.Linear(4096, 32000, bias=False)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def cost_recipes(like: str) -> dict[str, Recipe]:
    """GPT-2 small at 1,024 tokens and 7 B at 2,048, in bf16."""
    small = recipe(lambda: GPT(50257, 768, 12, 12, 1024), tokens(1024, 50257), "bf16", like)
    seven = recipe(Seven, tokens(2048, 32000), "bf16", like)
    return {"gpt2-small": small, "7b": seven}


def cost_of(name: str, like: str) -> None:
    """Print seconds, CPU seconds and peak resident bytes of one plan in this process, imports not counted.

    A trace runs on one thread, so its CPU seconds are its seconds on a machine that does nothing else.
    """
    import resource

    traced(recipe(lambda: mlp(8), lambda n: (torch.randn(n, 64), torch.randint(0, 10, (n,))), "bf16", like))
    begin, spent = time.perf_counter(), time.process_time()
    plan = traced(cost_recipes(like)[name])
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - spent
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    row = {"name": name, "like": like, "seconds": seconds, "cpu_seconds": cpu_seconds, "resident_bytes": resident}
    print(json.dumps({**row, "parameters": plan.num_parameters, "peak_at_1": plan.memory.peak_bytes(1)}))


def costs() -> list[dict[str, object]]:
    """Each plan in a fresh process."""
    rows = []
    for name in ("gpt2-small", "7b"):
        for like in ("cpu", "cuda"):
            command = [sys.executable, __file__, "--cost-of", name, "--like", like]
            done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(rows[-1], flush=True)
    return rows


def summary(rows: list[dict[str, object]]) -> dict[str, float]:
    """Median, 90 % and largest error, all models and those without convolutions."""
    every = [abs(float(str(row["error"]))) for row in rows]
    plain = [abs(float(str(row["error"]))) for row in rows if row["model"] not in CONVOLUTIONAL]
    return {
        "median": median(every),
        "p90": quantile(every, 0.9),
        "largest": max(every),
        "largest_without_convolutions": max(plain, default=0.0),
    }


def machine() -> dict[str, object]:
    """What the figures depend on; no names of hosts."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    load = os.getloadavg()[0]
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "load": round(load, 1),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "commit": commit.stdout.strip(),
    }


def save(part: str, found: dict[str, object]) -> None:
    """Write records/<date>-plan-<part>.json."""
    whole = {"date": date.today().isoformat(), "machine": machine(), **found}
    path = ROOT / "records" / f"{whole['date']}-plan-{part}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(whole, indent=1) + "\n")
    print(path.relative_to(ROOT))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", default="accuracy,cost")
    parser.add_argument("--scale", type=int, default=2, help="width of the models")
    parser.add_argument("--only", default="", help="models, by name")
    parser.add_argument("--record", action="store_true", help="write records/<date>-plan-<part>.json")
    parser.add_argument("--cost-of", default="", help="used by the cost part for its own processes")
    parser.add_argument("--like", default="cpu")
    options = parser.parse_args()
    if options.cost_of:
        return cost_of(options.cost_of, options.like)
    torch.manual_seed(0)
    found: dict[str, dict[str, object]] = {}
    if "accuracy" in options.parts:
        rows = accuracy(options.scale, [name for name in options.only.split(",") if name])
        lines = line_errors()
        found["accuracy"] = {"scale": options.scale, "summary": summary(rows), "line_errors": lines, "rows": rows}
        print(found["accuracy"]["summary"], lines)
    if "cost" in options.parts:
        found["cost"] = {"rows": costs()}
    for part, content in found.items() if options.record else ():
        save(part, content)
    return None


if __name__ == "__main__":
    main()
