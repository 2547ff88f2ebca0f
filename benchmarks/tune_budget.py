"""Whether every `gpudoc tune` ends within its budget: 20 scripts and configs, beside other work, with planted hangs.

    python benchmarks/tune_budget.py [--loads 0,1,2] [--only NAME,...] [--results rows.jsonl [--resume]] [--record FILE]

Each of the 20 is searched once for each number of busy loops beside it. Six hang, for ever and without a word, once
their loader has 4, 8 or 16 workers. A search is within its budget if it exceeds it by at most a tenth,
or by ten seconds if that is more, measured around the whole command. `answered` says that it ended with a
profile; if the machine is too slow for a budget, the search ends with exit code 2 and names a longer one, which is not
an answer but is within the budget. Everything is made in a temporary folder.
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from in_parts import Parts, add_options, open_parts

ROOT = Path(__file__).resolve().parents[1]
BUSY = "while True: pass"
# a search that is far beyond its budget is ended, and counts as not within it
MOST_TIMES = 4
WORK = """
import os, time, torch
from torch import nn

time.sleep({imports_s})

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        info = torch.utils.data.get_worker_info()
        if info is not None and info.num_workers >= {hangs_from}:
            time.sleep(1e6)
        time.sleep({sample_s})
        return torch.full(({width},), 0.1), index % 10

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear({width}, {hidden}), nn.ReLU(), nn.Linear({hidden}, 10))
    def forward(self, x):
        return self.body(x)
"""
LOOP = """
loader = torch.utils.data.DataLoader(Data(), batch_size=32, shuffle=True, num_workers={workers})
net = Net()
steps = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(100):
    for x, y in loader:
        steps.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        steps.step()
"""
CONFIG = """
model: {target: "work:Net"}
data: {target: "work:Data"}
loss: {target: "torch.nn:CrossEntropyLoss"}
optimizer: {target: "torch.optim:AdamW", args: {lr: 1.0e-3}}
"""


@dataclass(frozen=True)
class Work:
    """One script or config: the cost of its data and of its step, and the number of workers from which it hangs."""

    name: str
    is_script: bool
    only: str = ""
    budget_s: int = 40
    sample_s: float = 0.0
    hidden: int = 256
    imports_s: float = 0.0
    workers: int = 0
    hangs_from: int = 1000

    def write(self, folder: Path) -> list[str]:
        """The files in `folder`; the command that searches them."""
        given = {name: getattr(self, name) for name in ("sample_s", "hidden", "imports_s", "hangs_from", "workers")}
        text = WORK.format(width=512, **given)
        (folder / "work.py").write_text(text + (LOOP.format(**given) if self.is_script else ""))
        (folder / "cfg.yaml").write_text(CONFIG)
        options = ["--budget", f"{self.budget_s}s", "--json", "--memory-limit", "1GiB", *self._only]
        if self.is_script:
            return ["tune", *options, "--in-place", "--", sys.executable, "work.py"]
        return ["tune", "--model", "cfg.yaml", "--device", "cpu", *options]

    @property
    def _only(self) -> list[str]:
        return ["--only", self.only] if self.only else []


def works() -> Iterator[Work]:
    """The 20."""
    for is_script in (True, False):
        kind = "script" if is_script else "config"
        yield Work(f"{kind}", is_script)
        yield Work(f"{kind}, loader", is_script, only="loader", sample_s=0.01)
        yield Work(f"{kind}, batch", is_script, only="batch")
        yield Work(f"{kind}, slow data", is_script, sample_s=0.005, budget_s=60)
        yield Work(f"{kind}, wide", is_script, hidden=8192, budget_s=60)
        yield Work(f"{kind}, imports for 4 s", is_script, imports_s=4.0, budget_s=60)
        yield Work(f"{kind}, loader, 20 s", is_script, only="loader", sample_s=0.01, budget_s=20)
        for count in (4, 8, 16):
            name = f"{kind}, hangs from {count} workers"
            yield Work(name, is_script, only="loader", sample_s=0.01, hangs_from=count, budget_s=60)


def search(work: Work) -> dict[str, object]:
    """How long one whole command took, and how it ended."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = work.write(folder)
        environment = {**os.environ, "XDG_DATA_HOME": name, "PYTHONPATH": str(ROOT)}
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "gpudoc", *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            out, _ = process.communicate(timeout=MOST_TIMES * work.budget_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
        took = time.monotonic() - began
    try:
        told = json.loads(out)
    except ValueError:
        told = {}
    answer = told.get("answer") or {}
    return {
        "budget_s": work.budget_s,
        "took_s": round(took, 1),
        "within": took <= work.budget_s + max(10.0, 0.1 * work.budget_s),
        "code": process.returncode,
        "said": answer.get("kind") or ("size" if told.get("profile") else told.get("message", "nothing"))[:60],
    }


def table(parts: Parts) -> list[str]:
    """One line for each search, and how many were within their budget."""
    lines = ["| script or config | loops beside | budget | took | within | exit code | said |", "|" + "---|" * 7]
    for row in parts.rows:
        within = "yes" if row["within"] else "**no**"
        spent = f"{row['budget_s']} s | {row['took_s']} s | {within}"
        lines.append(f"| {row['work']} | {row['beside']} | {spent} | {row['code']} | {row['said']} |")
    return [*lines, "", f"{sum(row['within'] for row in parts.rows)} of {len(parts.rows)} within their budget"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", default="0,1,2", help="busy loops beside a search")
    parser.add_argument("--only", default="", help="names of the 20, separated by ';'")
    add_options(parser)
    options = parser.parse_args()
    parts = open_parts(options)
    wanted = {name.strip() for name in options.only.split(";") if name.strip()}
    for load in options.loads.split(","):
        with contextlib.ExitStack() as stack:
            for _ in range(int(load)):
                stack.callback(stack.enter_context(subprocess.Popen([sys.executable, "-c", BUSY])).kill)
            for work in works():
                is_done = any((row["work"], row["beside"]) == (work.name, load) for row in parts.rows)
                if is_done or (wanted and work.name not in wanted) or parts.time_is_up():
                    continue
                parts.add(work=work.name, beside=load, **search(work))
                print(table(parts)[-3], flush=True)
    print(*table(parts), sep="\n")
    if options.record:
        head = f"{parts.about()}; python benchmarks/tune_budget.py"
        options.record.write_text("\n".join([head, "", *table(parts), ""]))


if __name__ == "__main__":
    main()
