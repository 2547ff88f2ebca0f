"""The cost of gpudoc inside a script: microseconds a step, and milliseconds at its start, against the bare script.

    python benchmarks/script_hook.py [--steps 20000] [--rounds 7] [--record]

A step here is one batch drawn and one optimizer step, of a script that does next to nothing else: two tensors of eight
rows, a parameter of one number. Bare and watched stretches alternate within one process, so that they share its state;
the switch is the one that the hook itself reads to step aside. The start is `python -c "import torch"`, with and
without gpudoc's inside on its path, alternating. All figures are CPU seconds, so that other work on the machine counts
little.
"""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpudoc.script.hook import environment  # noqa: E402
from gpudoc.script.messages import HookOrder  # noqa: E402

SCRIPT = """
import gc, statistics, sys, time
import torch
from torch.utils.data import DataLoader

report = next(cell.cell_contents.report if hasattr(cell.cell_contents, "report") else cell.cell_contents._report
              for cell in DataLoader.__init__.__closure__ if hasattr(cell.cell_contents, "_report"))

class Rows(torch.utils.data.Dataset):
    rows = torch.zeros(8, 4), torch.zeros(8)
    def __init__(self, count): self.count = count
    def __len__(self): return self.count
    def __getitem__(self, index): return self.rows

class One(torch.optim.Optimizer):
    def __init__(self, parameter): super().__init__([parameter], {})
    def step(self, closure=None): pass

steps, rounds = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
optimizer = One(torch.nn.Parameter(torch.zeros(1)))
loader = DataLoader(Rows(steps), batch_size=None)

def stretch(off):
    report.off = off
    began = time.process_time()
    for x, y in loader:
        optimizer.step()
    return (time.process_time() - began) / steps * 1e6

stretch(False), stretch(True)
pairs = [(stretch(False), stretch(True)) for _ in range(rounds)]
report.off = False
print(*(f"{watched:.3f} {bare:.3f}" for watched, bare in pairs))
"""


def load():
    return f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {sys.version.split()[0]}"


def per_step(folder, purpose, options):
    told = folder / purpose
    told.mkdir()
    script = folder / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(options.steps), str(options.rounds)]
    variables = environment(told, HookOrder(purpose=purpose), os.environ)
    numbers = [float(word) for word in subprocess.check_output(command, env=variables, text=True).split()]
    watched, bare = numbers[::2], numbers[1::2]
    more = [w - b for w, b in zip(watched, bare, strict=True)]
    return statistics.median(more), min(more), statistics.median(bare)


def start(folder, rounds):
    told = folder / "start"
    told.mkdir()
    watched = environment(told, HookOrder(purpose="run"), os.environ)

    def seconds(variables):
        before = os.times()
        subprocess.run([sys.executable, "-c", "import torch"], env=variables, check=True)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    seconds(watched), seconds(os.environ)
    pairs = [(seconds(watched), seconds(os.environ)) for _ in range(rounds)]
    more = [(w - b) * 1e3 for w, b in pairs]
    return statistics.median(more), min(more), statistics.median(b for _, b in pairs) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    rows = [load(), "", "| | the hook adds (median) | least | bare |", "|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for purpose in ("run", "look"):
            rows.append(
                "| a step of a {} | {:.2f} us | {:.2f} us | {:.2f} us |".format(
                    purpose, *per_step(folder, purpose, options)
                )
            )
        rows.append("| the start | {:.1f} ms | {:.1f} ms | {:.0f} ms |".format(*start(folder, options.rounds)))
    print(*rows, load(), sep="\n")
    if options.record:
        path = ROOT / "records" / f"{datetime.date.today()}-script-hook.md"
        path.write_text("\n".join(["python benchmarks/script_hook.py", "", *rows, ""]))


if __name__ == "__main__":
    main()
