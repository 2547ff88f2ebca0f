"""Compares the seconds of `gpudoc tune --goal largest --only batch` with Lightning's batch size finder (binsearch).

    python benchmarks/tune_peer.py run [--only mlp,conv] [--limits 448,512] [--checkpointing auto] [--device cuda]
                                       [--tree DIR]
    python benchmarks/tune_peer.py record       # the table as Markdown, under records/

Both run whole commands in fresh processes, imports and all, in turns: the same net, optimizer, data, allocator and
limit. Lightning's finder takes the net as it is, and so does ours while activation checkpointing is `off`; with `auto`,
ours also checks whether checkpointing lets more fit. `--device cuda` is one GPU, which may be the stand-in's
(tests/standin): with STANDIN_MATH=0 its seconds are those of launches and of Python alone. `--tree` is another
commit's. Answers are appended to records/tune_peer.jsonl. Needs the package lightning.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from tune_workloads import KINDS, write_workload

TREE = Path(__file__).resolve().parents[1]
RECORDS = TREE / "records"
ROWS = RECORDS / "tune_peer.jsonl"
LIMITS = (448, 512)
MIB = 1 << 20

PEER = r"""
import json, resource, sys
sys.path.insert(0, sys.argv[1])
import torch

def private():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmData")) * 1024

before = private()
import lightning, warnings, logging
from lightning.pytorch.tuner import Tuner
from torch import nn
import tune_models as m
warnings.filterwarnings("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
kind, limit, device = sys.argv[2], int(sys.argv[3]), sys.argv[4]
trials = []

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.batch_size, self.loss = m.build(kind), 2, nn.CrossEntropyLoss()
    def forward(self, x): return self.net(x)
    def training_step(self, batch, _):
        x, y = batch
        if not trials or trials[-1] != len(x): trials.append(len(x))
        return self.loss(self(x), y)
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters(), lr=1e-4)
    def train_dataloader(self): return torch.utils.data.DataLoader(m.Random(kind, 200000), batch_size=self.batch_size)

more = 0
if device == "cpu":
    more = private() - before
    resource.setrlimit(resource.RLIMIT_DATA, (limit + more, limit + more))
else:
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory, 0)
model = Module()
trainer = lightning.Trainer(max_epochs=1, accelerator=device, devices=1, logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
result = Tuner(trainer).scale_batch_size(model, mode="binsearch", max_val=200000)
print(json.dumps({"batch": result, "trials": trials, "more_mib": more >> 20}))
"""


def timed(line: list[str], folder: str, environment: dict[str, str]) -> tuple[subprocess.CompletedProcess, dict]:
    """The finished command with its wall time, and the CPU time of it and of every process that it started."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    wall_s, after_ = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after_.ru_utime + after_.ru_stime - before.ru_utime - before.ru_stime
    return done, {"wall_s": round(wall_s, 2), "cpu_s": round(cpu_s, 2)}


def command(folder: str, limit_mib: int, source: str, device: str, package: Path) -> dict:
    """The result of `gpudoc tune --goal largest --only batch` of the tree `package`, from first import to last."""
    line = [sys.executable, "-m", "gpudoc", "tune", "--model", source, "--device", device, "--goal", "largest"]
    line += ["--only", "batch", "--memory-limit", f"{limit_mib}MiB", "--fresh", "--budget", "1h", "--json"]
    line += ["--out", "tuned.yaml"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])}
    done, took = timed(line, folder, environment)
    done.check_returncode()
    evidence = json.loads(done.stdout)["profile"]["evidence"]
    trials = [(trial["kind"], trial["batch"], trial["end"], trial["seconds"]) for trial in evidence["trials"]]
    return {"batch": evidence["largest_batch"], "trials": trials, **took}


def lightning(folder: str, limit_mib: int, kind: str, device: str) -> dict:
    """The result of Lightning's binsearch in a process with the same allocator, from its first import to its last.

    On a CPU it may have as much more memory as importing Lightning takes on top of PyTorch. That is generous, since our
    trials import more than PyTorch too: if it finds 7782, it never met the limit, but stopped at 8192 and took off
    5 %.
    """
    from gpudoc.process.allocator import MALLOC

    line = [sys.executable, "-c", PEER, folder, kind, str(limit_mib * MIB), device]
    done, took = timed(line, folder, {**os.environ, **(MALLOC if device == "cpu" else {})})
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        answer = {"failed": done.stderr.strip().splitlines()[-1:]}
    return {**answer, **took}


def peer(kinds: list[str], limits: list[int], checkpointing: str, device: str, package: Path) -> None:
    """Lightning's binsearch and our command, one right after the other; the load is that of the minute before."""
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            source = str(write_workload(Path(folder), kind, activation_checkpointing=checkpointing))
            for limit_mib in limits:
                load = os.getloadavg()[0]
                theirs = lightning(folder, limit_mib, kind, device)
                ours = command(folder, limit_mib, source, device, package)
                keep(
                    {
                        "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                        "commit": commit(package),
                        "model": kind,
                        "device": device,
                        "limit_mib": limit_mib,
                        "checkpointing": checkpointing,
                        "lightning": theirs,
                        "ours": ours,
                        "load": round(load, 1),
                        "ratio": round(ours["wall_s"] / theirs["wall_s"], 3),
                        "cpu_ratio": round(ours["cpu_s"] / theirs["cpu_s"], 3),
                    }
                )


def keep(row: dict) -> None:
    """Append one pair of answers."""
    RECORDS.mkdir(exist_ok=True)
    with ROWS.open("a") as stream:
        stream.write(json.dumps(row) + "\n")
    print(row, flush=True)


def commit(tree: Path) -> str:
    """The commit of the tree that is measured; BENCHMARKED_COMMIT if that is not a checkout."""
    line = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tree)
    return os.environ.get("BENCHMARKED_COMMIT") or done.stdout.strip()


def write_record() -> None:
    """The pairs as a table, with the machine."""
    import torch

    cpu = next((r for r in Path("/proc/cpuinfo").read_text().splitlines() if r.startswith("model name")), "")
    machine = f"torch {torch.__version__}, Python {platform.python_version()}, CPU{cpu.partition(':')[2]}"
    columns = [
        "commit",
        "net",
        "device",
        "limit MiB",
        "checkpointing",
        "Lightning's batch",
        "trials",
        "s",
        "CPU s",
        "our batch",
    ]
    columns += ["trials", "s", "CPU s", "ratio s", "ratio CPU s", "load"]
    lines = [
        "# Seconds of the largest batch, beside Lightning's batch size finder",
        "",
        f"{datetime.date.today()}, {machine}, {torch.get_num_threads()} threads. Whole commands, one after the other;",
        "CPU seconds are those of all their processes, load that of the minute before. Lightning takes a margin of 5 %",
        "off what it found, runs three steps a trial in one process, and up to c9ff9c2 stopped at its default of 8192.",
        "",
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
    ]
    for row in (json.loads(line) for line in ROWS.read_text().splitlines()):
        theirs, ours = row["lightning"], row["ours"]
        lines.append(
            f"| {row['commit']} | {row['model']} | {row.get('device', 'cpu')} | {row['limit_mib']} | "
            f"{row['checkpointing']} | {theirs.get('batch', 'failed')} | "
            f"{len(theirs.get('trials', ()))} | {theirs['wall_s']} | {theirs['cpu_s']} | {ours['batch']} | "
            f"{len(ours['trials'])} | {ours['wall_s']} | {ours['cpu_s']} | {row['ratio']} | {row['cpu_ratio']} | "
            f"{row['load']} |"
        )
    path = RECORDS / f"{datetime.date.today()}-tune-peer.md"
    path.write_text("\n".join(lines) + "\n")
    print(path)


def main() -> int:
    """Run the pairs or write their record; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["run", "record"])
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--limits", default=",".join(map(str, LIMITS)))
    parser.add_argument("--checkpointing", default="off", choices=["off", "auto"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--tree", type=Path, default=TREE, help="where the gpudoc to run lies")
    options = parser.parse_args()
    if options.part == "run":
        limits = [int(part) for part in options.limits.split(",")]
        peer(options.only.split(","), limits, options.checkpointing, options.device, options.tree)
    else:
        write_record()
    return 0


if __name__ == "__main__":
    sys.exit(main())
