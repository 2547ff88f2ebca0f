"""The cost of `gpudoc train -- COMMAND`: pairs of the same script, bare and run by gpudoc, taking turns.

    python benchmarks/script_overhead.py [--pairs 10] [--record FILE] [--results FILE [--resume] [--budget SECONDS]]

Each script says how long its own work took, without its imports: steps that compute, steps that print a line each, a
loader with two workers, and 64 MiB of output at once. It does the same several times, and `work` is the fastest, since
bursts on the machine only slow it; CPU time is the least of them too. `whole` is the time until the command has ended
as its caller sees it, so that gpudoc's own start counts. Output goes into a pipe
that is read at once. The result says how busy the machine was.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from in_parts import ROOT, add_options, open_parts

BEGIN = """
import sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
data = TensorDataset(torch.randn(32000, 64))
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
def train(each, **loader):
    for (x,) in DataLoader(data, batch_size=32, shuffle=True, **loader):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        each()
times = []
def timed(work):
    began, used = time.perf_counter(), time.process_time()
    work()
    times.append((time.perf_counter() - began, time.process_time() - used))
"""
END = """
sys.stdout.flush()
sys.stderr.write(f"work {min(t for t, _ in times)} {min(used for _, used in times)}\\n")
"""
CASES = {
    "steps": "for _ in range(8): timed(lambda: train(lambda: None))",
    "steps that print": (
        "for _ in range(8): timed(lambda: train(lambda: print('a line of a log that tells step, loss and more')))"
    ),
    "two workers": "for _ in range(4): timed(lambda: train(lambda: None, num_workers=2))",
    "64 MiB of output": "for _ in range(4): timed(lambda: [sys.stdout.write('x' * 65535 + '\\n') for _ in range(256)])",
}


def run_once(command):
    """Seconds of the script's own work, of the whole, and of CPU in its own work."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    # stderr is a few lines, and fits the pipe
    while os.read(process.stdout.fileno(), 1 << 16):
        pass
    said = process.stderr.read().decode()
    if process.wait():
        raise SystemExit(said)
    whole = time.perf_counter() - began
    work, used = next(map(float, line.split()[1:]) for line in said.splitlines() if line.startswith("work "))
    return work, whole, used


def one_pair(script, gpudoc_first):
    bare = [sys.executable, str(script)]
    ways = {"bare": bare, "gpudoc": [sys.executable, "-m", "gpudoc", "train", "--profile", "off", "--", *bare]}
    order = sorted(ways, reverse=gpudoc_first)
    return {name: run_once(ways[name]) for name in order}


def table(rows):
    lines = [
        "| script | pairs | work, bare | by gpudoc / bare, median | all pairs | its CPU time | whole, more by |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        found = [row for row in rows if row["case"] == case]
        if found:
            ratios = sorted(row["gpudoc"][0] / row["bare"][0] for row in found)
            more = statistics.median(row["gpudoc"][1] - row["bare"][1] for row in found)
            bare = statistics.median(row["bare"][0] for row in found)
            used = statistics.median(row["gpudoc"][2] / row["bare"][2] for row in found)
            every = ", ".join(f"{ratio:.3f}" for ratio in ratios)
            figures = f"{bare:.2f} s | {statistics.median(ratios):.3f} | {every} | {used:.3f} | {more:+.2f} s"
            lines.append(f"| {case} | {len(found)} | {figures} |")
    return lines


def write_record(place, parts):
    how = "Command: `python benchmarks/script_overhead.py " + " ".join(sys.argv[1:]) + "`."
    lines = ["# What `gpudoc train -- COMMAND` costs", "", f"{parts.about()}.", how, "", *table(parts.rows)]
    place.write_text("\n".join(lines) + "\n")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pairs", type=int, default=10)
    add_options(options)
    options = options.parse_args()
    parts = open_parts(options)
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(options.pairs):
            for case, work in CASES.items():
                if parts.time_is_up() or any((r["case"], r["pair"]) == (case, pair) for r in parts.rows):
                    continue
                script = Path(folder, "train.py")
                script.write_text(f"{BEGIN}{work}\n{END}")
                parts.add(case=case, pair=pair, **one_pair(script, bool(pair % 2)))
                last = parts.rows[-1]
                print(f"  {case} {pair + 1}: {last['bare'][0]:.2f} s bare, {last['gpudoc'][0]:.2f} s", flush=True)
                if options.record:
                    write_record(options.record, parts)
    print("\n".join(table(parts.rows)))


if __name__ == "__main__":
    main()
