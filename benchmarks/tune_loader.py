"""Compares the tuned loader with the best of a full grid and with the suggestions of others, on five data sets.

python benchmarks/tune_loader.py [--datasets cheap,decode,...] [--rounds 15] [--cell-seconds 0.5] [--loadtune PATH]

Truth: every cell of workers x prefetch is timed with real steps, in stretches of half a second, all cells taking turns
in a shuffled order; a cell's figure is the lower quartile of its stretches, since bursts on the machine only slow them.
The slower half drops out after a third of the rounds, all but the best four and the picks after another third. The
best cell and the picks are then timed once more against each other, since a grid's best cell is partly luck.
The tuner runs first and sees none of it. `--loadtune` names the `loadtune` command of another environment.
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
import textwrap
import threading
import time
from datetime import date
from pathlib import Path

import psutil
import torch

import gpudoc
from gpudoc.facts.host import cpus_usable
from gpudoc.stats import quantile
from gpudoc.tune.loader.bounds import bounds_here
from gpudoc.tune.loader.messages import Open
from gpudoc.tune.loader.search import tune_loader
from gpudoc.tune.loader.session import LoaderSession, MeasurementError
from gpudoc.tune.model.loader import LoaderBounds, LoaderSetting, ram_needed_bytes
from gpudoc.workload.config import load_config
from gpudoc.workload.images import draw_folder

ROOT = Path(__file__).resolve().parents[1]
MODULE = """
import random, time
import torch
from torch import nn
from gpudoc.workload.images import ImageFolder

class Cheap(torch.utils.data.Dataset):
    def __init__(self):
        self.x = torch.randn(20000, 64, generator=torch.Generator().manual_seed(0))
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        return self.x[i], self.x[i].sum()

class Sleeps(Cheap):
    def __getitem__(self, i):
        time.sleep(0.003)
        return super().__getitem__(i)

class Jitter(Cheap):
    '''Most samples take 1 ms, one in a hundred a Pareto tail of up to a quarter of a second; fixed by the index.'''
    def __getitem__(self, i):
        draw = random.Random(i)
        slow = min(0.25, 0.02 * draw.paretovariate(1.1)) if draw.random() < 0.01 else 0.0
        time.sleep(0.001 + slow)
        return super().__getitem__(i)

class Large(torch.utils.data.Dataset):
    '''A megabyte of float32 each.'''
    def __len__(self):
        return 4000
    def __getitem__(self, i):
        return torch.full((4, 256, 256), float(i % 7)), torch.tensor(float(i % 2))

class Images(ImageFolder):
    def __getitem__(self, i):
        image, label = super().__getitem__(i)
        return image, torch.tensor(float(label))

class Net(nn.Module):
    '''A step of a few milliseconds whatever the sample is.'''
    def __init__(self, width=256, depth=4):
        super().__init__()
        self.body = nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())))
        self.head = nn.Linear(width, 1)
        self.width = width
    def forward(self, x):
        flat = x.flatten(1)[:, : self.width]
        flat = nn.functional.pad(flat, (0, self.width - flat.shape[1]))
        return self.head(self.body(flat)).flatten()
"""
# data set -> (target and arguments, batch, width of the net, worker counts of the grid)
FEW, MANY = (0, 1, 2, 3, 4), (0, 1, 2, 4, 6, 8, 12, 16)
CASES = {
    "cheap": ("loads:Cheap", {}, 64, 512, FEW),
    "decode": ("loads:Images", {"root": "images-data/train"}, 32, 512, FEW),
    "sleep": ("loads:Sleeps", {}, 16, 512, MANY),
    "large": ("loads:Large", {}, 16, 512, FEW),
    "jitter": ("loads:Jitter", {}, 32, 512, MANY),
}
FACTORS = (1, 2, 4, 8)
LOADTUNE = """
import torch
from loadtune.workload import Workload
import loads
def step(model, optimizer, batch, device):
    x, y = (part.to(device) for part in batch)
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward(); optimizer.step(); optimizer.zero_grad()
    return loss
def get_workload():
    return Workload(name="case", make_dataset=lambda: loads.{name}(**{args}), make_model=lambda: loads.Net({width}),
                    train_step=step, make_optimizer=lambda m: torch.optim.AdamW(m.parameters()),
                    default_batch_size={batch})
"""


class MemoryWatch(threading.Thread):
    """The most memory that loader workers and the batches in /dev/shm took at once, sampled while another tunes."""

    def __init__(self):
        super().__init__(daemon=True)
        self.done, self.peak, self.base = threading.Event(), 0, psutil.disk_usage("/dev/shm").used

    def run(self):
        while not self.done.wait(0.05):
            self.peak = max(self.peak, self.now())

    def now(self):
        held = psutil.disk_usage("/dev/shm").used - self.base
        for child in psutil.Process().children():
            for worker in child.children(recursive=True):
                try:
                    held += worker.memory_full_info().uss
                except psutil.Error:
                    continue
        return held


def write_case(folder, name):
    target, args, batch, width, _ = CASES[name]
    (folder / "loads.py").write_text(MODULE)
    path = folder / f"{name}.yaml"
    path.write_text(
        f'model: {{target: "loads:Net", args: {{width: {width}}}}}\n'
        f'data: {{target: "{target}", args: {json.dumps(args)}}}\n'
        'loss: {target: "torch.nn:MSELoss"}\ntrain: {epochs: 3}\n'
    )
    program = LOADTUNE.format(name=target.split(":")[1], args=args, width=width, batch=batch)
    (folder / f"loadtune_{name}.py").write_text(textwrap.dedent(program))
    return load_config(str(path)), batch


def suggested_by_lightning():
    try:
        from lightning.fabric.utilities.data import suggested_max_num_workers
    except ImportError:
        return None
    return suggested_max_num_workers(1)


def suggested_by_loadtune(command, folder, name):
    raw = folder / f"{name}-raw.json"
    done = subprocess.run(
        [command, "tune", f"loadtune_{name}.py", "--no-plots", "--save-raw", str(raw), "--out", f"{name}.md"],
        cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=900,
    )  # fmt: skip
    if done.returncode:
        print(done.stdout[-500:], done.stderr[-500:], file=sys.stderr)
        return None
    if not raw.exists():
        return {"num_workers": 0, "runs": 1}
    told = json.loads(raw.read_text())
    ran = [t for t in told["trials"] if t["result"] and not t["result"].get("error")]
    rate = told["baseline"].get("throughput", 0.0)
    best = max(ran, key=lambda t: t["result"]["throughput"], default=None)
    if best is None or best["result"]["throughput"] <= rate:
        return {"num_workers": 0, "runs": len(told["trials"]) + 1}
    knobs = best["knobs"]
    factor = knobs.get("prefetch_factor") or 2
    return {"num_workers": knobs["num_workers"], "prefetch_factor": factor, "runs": len(told["trials"]) + 1}


def measure_grid(workload, batch, settings, picks, options):
    """Seconds per step of each setting, and the cells that were timed to the end, from which the best is taken.

    All take turns; the slower half drops out after a third of the rounds, all but four and the picks after another.
    """
    rows = {setting: [] for setting in settings}
    draw = random.Random(0)
    with LoaderSession(Open(loaded=workload, batch_size=batch, device="cpu")) as session:
        costs = session.costs(1.0)
        running = list(settings)
        for number in range(options.rounds):
            if number in (options.rounds // 3, 2 * options.rounds // 3):
                kept = len(running) // 2 if number == options.rounds // 3 else 4
                ranked = sorted((s for s in running if rows[s]), key=lambda s: quantile(rows[s], 0.25))
                running = list({*ranked[:kept], *picks})
            for setting in draw.sample(running, len(running)):
                guess = rows[setting][0] if rows[setting] else max(costs.step_s, costs.mean_batch_s)
                time_once(session, setting, guess, rows, options)
    return {setting: quantile(values, 0.25) for setting, values in rows.items() if values}, set(running)


def time_once(session, setting, guess, rows, options):
    try:
        run = session.run(setting, seconds=options.cell_seconds, period_s=guess)
    except MeasurementError as problem:
        print(f"{setting}: {problem}", file=sys.stderr)
    else:
        rows[setting].append(run.step_s)


def run_off(workload, batch, grid, settings, options):
    """Seconds per step of the grid's best and of the picks in separate rounds, where its luck no longer counts."""
    rows = {setting: [] for setting in settings}
    draw = random.Random(1)
    with LoaderSession(Open(loaded=workload, batch_size=batch, device="cpu")) as session:
        for _ in range(options.rounds):
            for setting in draw.sample(list(rows), len(rows)):
                time_once(session, setting, grid[setting], rows, options)
    return {setting: quantile(values, 0.25) for setting, values in rows.items()}


def cells(name):
    counts = CASES[name][-1]
    return [LoaderSetting(num_workers=w, prefetch_factor=p) for w in counts for p in (FACTORS if w else (2,))]


def run_case(folder, name, options):
    workload, batch = write_case(folder, name)
    bounds = bounds_here(seconds=options.budget)
    if name == "large":  # a budget that its 16 MiB batches can break: sixteen of them and some private pages
        bounds = LoaderBounds(cpus=bounds.cpus, ram_bytes=320 << 20, shm_bytes=192 << 20, seconds=options.budget)
    watch = MemoryWatch()
    watch.start()
    began = time.monotonic()
    choice = tune_loader(Open(loaded=workload, batch_size=batch, device="cpu"), bounds=bounds)
    seconds = time.monotonic() - began
    watch.done.set()
    ours = LoaderSetting(num_workers=choice.num_workers, prefetch_factor=choice.prefetch_factor)
    picks = {"gpudoc": ours, "PyTorch's default": LoaderSetting(num_workers=0)}
    picks["os.cpu_count()"] = LoaderSetting(num_workers=os.cpu_count())
    if (count := suggested_by_lightning()) is not None:
        picks["Lightning's suggestion"] = LoaderSetting(num_workers=count)
    told = suggested_by_loadtune(options.loadtune, folder, name) if options.loadtune else None
    if told is not None:
        count = told["num_workers"]
        picks["loadtune"] = LoaderSetting(num_workers=count, prefetch_factor=told.get("prefetch_factor", 2))
    every = sorted({*cells(name), *picks.values()}, key=repr)
    grid, finalists = measure_grid(workload, batch, every, set(picks.values()), options)
    room = bounds.ram_bytes or 1 << 60
    fits = {s: grid[s] for s in finalists if ram_needed_bytes(s, choice.costs) <= room}
    best = min(fits, key=fits.get)
    last = run_off(workload, batch, grid, {best, *(s for s in picks.values() if s in fits)}, options)
    return {
        "name": name, "picks": picks, "grid": grid, "best": best, "run_off": last, "batch": batch,
        "settings_run": len(choice.trials),
        "seconds": seconds, "budget": bounds.ram_bytes, "peak": watch.peak, "missing": choice.missing_factor,
        "needed": max(ram_needed_bytes(t.setting, choice.costs) for t in choice.trials), "reasons": choice.reasons,
        "loadtune_runs": told["runs"] if told else None,
    }  # fmt: skip


def brief(setting):
    return "0" if setting.num_workers == 0 else f"{setting.num_workers} x {setting.prefetch_factor}"


def machine():
    rows = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((row.split(":")[1].strip() for row in rows if "model name" in row), "unknown CPU")
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    threads = os.environ.get("OMP_NUM_THREADS", "unset")
    return (
        f"{cpu}, {cpus_usable():g} CPUs usable, Python {platform.python_version()}, torch {torch.__version__}, "
        f"gpudoc {gpudoc.__version__} at {asked.stdout.strip()}; OMP_NUM_THREADS={threads}; "
        f"load average at the end {os.getloadavg()[0]:.1f}."
    )


def share_row(r):
    rates = {setting: r["batch"] / seconds for setting, seconds in r["run_off"].items()}
    top = rates[r["best"]]
    shares = [f"{rates[s] / top:.1%} ({brief(s)})" if s in rates else "-" for s in r["picks"].values()]
    best = f"{top:,.0f}/s ({brief(r['best'])} of {len(r['grid'])} cells)"
    return f"| {r['name']} | {best} | " + " | ".join(shares) + f" | {r['settings_run']} | {r['seconds']:.0f} |"


def memory_row(r):
    missing = "-" if r["missing"] is None else f"{r['missing']:.2f}"
    sizes = " | ".join(f"{r[key] / 2**20:,.0f}" for key in ("budget", "needed", "peak"))
    return f"| {r['name']} | {sizes} | {missing} | {r['loadtune_runs'] or '-'} |"


def grid_row(r):
    cells = sorted(r["grid"].items(), key=lambda cell: (cell[0].num_workers, cell[0].prefetch_factor))
    return f"- {r['name']}: " + ", ".join(f"{brief(s)}: {r['batch'] / seconds:,.0f}" for s, seconds in cells)


def report(results, options):
    picks = list(results[0]["picks"])
    lines = [f"# Tuned loader against a full grid, {date.today()}", "", machine(), ""]
    lines += [
        f"`python benchmarks/tune_loader.py --rounds {options.rounds} --cell-seconds {options.cell_seconds:g}`",
        "",
    ]
    lines += ["Share of the best cell's samples/s (workers x prefetch in brackets), both in a run-off of as many"]
    lines += ["rounds after the grid: its best cell is the luckiest of many, and what beats it gets over 100 %.", ""]
    lines += ["| data set | best of grid | " + " | ".join(picks) + " | settings run | tuning s |"]
    lines += ["|---|---|" + "---|" * len(picks) + "---|---|", *map(share_row, results), ""]
    lines += ["| data set | RAM budget MiB | predicted need MiB | measured peak MiB | missing factor | loadtune runs |"]
    lines += ["|---|---|---|---|---|---|", *map(memory_row, results), "", "What it said:", ""]
    lines += [f"- {r['name']}: {reason}" for r in results for reason in r["reasons"]]
    lines += ["", "Every cell, samples/s:", "", *map(grid_row, results)]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cell-seconds", type=float, default=0.5)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each tuning")
    parser.add_argument("--loadtune", default=None)
    parser.add_argument("--record", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        draw_folder(Path("images-data"), per_class=125, seed=0)
        results = []
        for name in options.datasets.split(","):
            results.append(run_case(Path(place), name, options))
            print(report(results[-1:], options), flush=True)
        text = report(results, options)
        os.chdir(ROOT)
    if options.record:
        options.record.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
