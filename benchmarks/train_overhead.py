"""The time that a trainer adds to a step: gpudoc, Fabric, Accelerate and Lightning against a bare loop, interleaved.

    python benchmarks/train_overhead.py [--rounds 400] [--step-ms 0,1,5,20] [--peers] [--record]
    python benchmarks/train_overhead.py --whole 10 [--loops 0,1] [--hidden 2048] [--step-ms 0] [--threads 1,2]

All loops run in one process and take turns of STRETCH steps, in an order that rotates: within seconds, a virtual
machine's speed drifts by more than the differences sought. What a loop adds is the median over rounds of its turn less
the bare loop's. The bare loop is what a person writes: zero_grad, forward, backward, step over a DataLoader, the loss
read every 10th step. Every loop has the same model, data, loss function, optimizer (fused AdamW) and thread count.
`--step-ms` sleeps inside the model to make longer steps.

With `--whole`, processes are compared instead, as a user would: pairs of whole runs of `--steps` steps, one right
after the other and every second pair the other way round, timed by the clock of the process that started them, from
the step after WARM_UP turns to the last one; gpudoc's threads wait as in its command. More `--hidden` units make the
computation of a step longer, and `--loops` busy loops run beside all of it. In a row, `of_bare` are quartiles over the
pairs.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
from torch.nn import functional  # noqa: E402

from gpudoc.process.openmp import SPINS  # noqa: E402

STRETCH = 50
# turns of each loop before the first one that counts
WARM_UP = 2
MODULE = '''
import time
import torch
from torch import nn

class Batches(torch.utils.data.Dataset):
    """Every sample is a whole batch of 32 rows, so that reading costs next to nothing."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(64, 32, 64, generator=generator)
        self.y = torch.randint(0, 10, (64, 32), generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x[index % 64], self.y[index % 64]

def first(samples):
    return samples[0]

class Sleep(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def forward(self, x):
        if self.seconds:
            time.sleep(self.seconds)
        return x

def build_model(seconds=0.0, hidden=128):
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), Sleep(seconds), nn.Linear(hidden, 10))
'''


def bare(module, steps, seconds, hidden=128):
    """The loop that a person writes; yields after every turn, as all of them do."""
    model = module.build_model(seconds, hidden)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    loader = torch.utils.data.DataLoader(module.Batches(steps), batch_size=None, shuffle=True)
    losses = []
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            losses.append(loss.item())
        if step % STRETCH == STRETCH - 1:
            yield


def gpudoc_loop(module, steps, seconds, hidden=128):
    """gpudoc's whole trainer with its defaults: metrics.jsonl every 10 steps, time split, undo, finite check."""
    from gpudoc.train.events import Progressed
    from gpudoc.train.request import TrainRequest
    from gpudoc.train.run import run

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "cfg.yaml"
        data = {"target": "overhead_workload:Batches", "args": {"count": steps}, "collate": "overhead_workload:first"}
        config = {
            "model": {"target": "overhead_workload:build_model", "args": {"seconds": seconds, "hidden": hidden}},
            "data": data,
            "loss": {"target": "torch.nn.functional:cross_entropy"},
            "optimizer": {"target": "torch.optim:AdamW", "args": {"lr": 1e-3}},
            "train": {"global_batch": 1, "reference_batch": 1, "precision": "fp32", "checkpoint_every": 0},
        }
        (path.parent / "overhead_workload.py").write_text(MODULE)
        path.write_text(json.dumps(config))
        request = TrainRequest(
            model=str(path), profile="off", device="cpu", preflight=False, run_dir=pathlib.Path(folder) / "run"
        )
        for event in run(request):
            if isinstance(event, Progressed) and event.step % STRETCH == 0:
                yield


def fabric_loop(module, steps, seconds):
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    model = module.build_model(seconds)
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True))
    loader = torch.utils.data.DataLoader(module.Batches(steps), batch_size=None, shuffle=True)
    loader = fabric.setup_dataloaders(loader)
    losses = []
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        fabric.backward(loss)
        optimizer.step()
        if step % 10 == 9:
            losses.append(loss.item())
        if step % STRETCH == STRETCH - 1:
            yield


def accelerate_loop(module, steps, seconds):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = module.build_model(seconds)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    loader = torch.utils.data.DataLoader(module.Batches(steps), batch_size=1, shuffle=True, collate_fn=module.first)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for step, (x, y) in enumerate(loader):
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
        if step % 10 == 9:
            losses.append(loss.item())
        if step % STRETCH == STRETCH - 1:
            yield


def lightning_loop(module, steps, seconds):
    """Lightning's Trainer, which is not a generator: it runs in a thread, and waits there between its turns."""
    import lightning

    mine, theirs = threading.Semaphore(0), threading.Semaphore(0)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = module.build_model(seconds)

        def training_step(self, batch, index):
            x, y = batch
            loss = functional.cross_entropy(self.model(x), y)
            if index % 10 == 9:
                self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3, fused=True)

        def on_train_batch_end(self, outputs, batch, index):
            if index % STRETCH == STRETCH - 1:
                theirs.release()
                mine.acquire()

    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = torch.utils.data.DataLoader(module.Batches(steps), batch_size=None, shuffle=True)

    def fit():
        torch.set_num_threads(1)
        trainer.fit(Module(), loader)

    threading.Thread(target=fit, daemon=True).start()
    for _ in range(steps // STRETCH):
        theirs.acquire()
        yield
        mine.release()


def in_turns(
    loops: dict[str, Callable[..., Iterator[None]]], module: object, rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Per loop: seconds per step of each of its turns that count."""
    turns = WARM_UP + rounds
    running = {name: loop(module, turns * STRETCH, seconds) for name, loop in loops.items()}
    times: dict[str, list[float]] = {name: [] for name in loops}
    names = itertools.cycle(loops)
    for turn in range(turns):
        for name in itertools.islice(names, len(loops)):
            began = time.perf_counter()
            next(running[name])
            if turn >= WARM_UP:
                times[name].append((time.perf_counter() - began) / STRETCH)
        # so that each loop comes after each of the others
        next(names)
    for loop in running.values():
        for _ in loop:
            pass
    return times


def one_run(name: str, options: argparse.Namespace, seconds: float) -> None:
    """This process's whole run of one loop: a line when it is warm, and one after the last step."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "overhead_workload.py").write_text(MODULE)
        sys.path.insert(0, folder)
        import overhead_workload

        warm = WARM_UP * STRETCH
        loop = {"bare": bare, "gpudoc": gpudoc_loop}[name](
            overhead_workload, warm + options.steps, seconds, options.hidden
        )
        for turn in range(1, WARM_UP + options.steps // STRETCH + 1):
            next(loop)
            if turn in (WARM_UP, WARM_UP + options.steps // STRETCH):
                print("mark", flush=True)
        for _ in loop:
            pass


def timed_run(name: str, options: argparse.Namespace, step_ms: float, threads: int) -> tuple[float, float]:
    """Seconds a step between the two marks of a process, and seconds of the whole process, by the clock of this one."""
    words = ["--one", name, "--steps", str(options.steps), "--hidden", str(options.hidden), "--step-ms", str(step_ms)]
    spins = {} if name == "bare" else {"GOMP_SPINCOUNT": SPINS}
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), **spins}
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, __file__, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        marks = [time.perf_counter() for line in process.stdout if line == b"mark\n"]
    if len(marks) != 2:
        raise SystemExit(f"the run of {name} ended with exit code {process.returncode}")
    return (marks[1] - marks[0]) / options.steps, time.perf_counter() - began


def in_pairs(options: argparse.Namespace, step_ms: float, threads: int, loops: int) -> dict[str, object]:
    """Whole runs of both loops in alternation, beside busy loops."""
    found: dict[str, list[tuple[float, float]]] = {"bare": [], "gpudoc": []}
    with contextlib.ExitStack() as stack:
        for _ in range(loops):
            stack.callback(stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"])).kill)
        for pair in range(options.whole):
            for name in list(found)[:: 1 if pair % 2 == 0 else -1]:
                found[name].append(timed_run(name, options, step_ms, threads))
    pairs = list(zip(found["bare"], found["gpudoc"], strict=True))
    ratios = [base[0] / mine[0] for base, mine in pairs]
    return {
        "loops": loops,
        "threads": threads,
        "sleep_ms": step_ms,
        "pairs": options.whole,
        **{f"{name}_us": round(1e6 * statistics.median(row[0] for row in rows), 1) for name, rows in found.items()},
        "of_bare": [round(part, 4) for part in statistics.quantiles(ratios, n=4)],
        "whole_s": {name: round(statistics.median(row[1] for row in rows), 2) for name, rows in found.items()},
        "load": round(os.getloadavg()[0], 1),
    }


def compare_whole(options: argparse.Namespace) -> None:
    """A row for each number of loops, threads and step."""
    cases = itertools.product(_numbers(options.loops), _numbers(options.threads), _numbers(options.step_ms))
    for loops, threads, step_ms in cases:
        print(json.dumps(in_pairs(options, step_ms, int(threads), int(loops))), flush=True)


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--step-ms", default="0")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--whole", type=int, default=0, metavar="PAIRS", help="compare whole processes")
    parser.add_argument("--steps", type=int, default=2000, help="of a whole run")
    parser.add_argument("--hidden", type=int, default=128, help="units of the net of a whole run")
    parser.add_argument("--threads", default="1", help="of whole runs")
    parser.add_argument("--loops", default="0", help="busy loops beside whole runs")
    parser.add_argument("--one", choices=["bare", "gpudoc"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.whole:
        compare_whole(options)
        return
    if options.one:
        one_run(options.one, options, float(options.step_ms) / 1e3)
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in ("lightning", "lightning.pytorch", "lightning.fabric", "accelerate"):
        logging.getLogger(name).setLevel(logging.ERROR)
    loops = {"bare": bare, "gpudoc": gpudoc_loop}
    if options.peers:
        loops |= {"fabric": fabric_loop, "accelerate": accelerate_loop, "lightning": lightning_loop}
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "overhead_workload.py").write_text(MODULE)
        sys.path.insert(0, folder)
        import overhead_workload

        results = {}
        for step_ms in [float(text) for text in options.step_ms.split(",")]:
            with contextlib.redirect_stdout(sys.stderr):
                times = in_turns(loops, overhead_workload, options.rounds, step_ms / 1e3)
            results[f"{step_ms:g} ms"] = describe(times)
    print(json.dumps(results, indent=1))
    if options.record:
        from train_record import write_record

        write_record("train-overhead", {"what": __doc__.splitlines()[0], "options": vars(options), "results": results})


def describe(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Per loop: median µs a step, quartiles of its difference to the bare loop of the same round, and the ratio."""
    rows = {}
    for name, values in times.items():
        apart = [value - base for value, base in zip(values, times["bare"], strict=True)]
        ratio = [base / value for value, base in zip(values, times["bare"], strict=True)]
        low, middle, high = (round(1e6 * part, 1) for part in statistics.quantiles(apart, n=4))
        rows[name] = {
            "us_per_step": round(1e6 * statistics.median(values), 1),
            "us_best": round(1e6 * min(values), 1),
            "overhead_us_median": middle,
            "overhead_us_quartiles": [low, high],
            "samples_per_s_of_bare_median": round(statistics.median(ratio), 4),
        }
    return rows


if __name__ == "__main__":
    main()
