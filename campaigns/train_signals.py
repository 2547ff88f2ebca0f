"""Signals to the whole process group, with 2 loader workers, in every phase: is the state always saved?

    python campaigns/train_signals.py [--count 100] [--seed 0] [--record]

Each trial starts a run, waits for its first logged steps and a random moment more, sends SIGINT, SIGTERM or SIGUSR1 to
the group, and asks for: the right exit code, a whole checkpoint of the step in summary.json, no process left.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import psutil  # noqa: E402
from train_record import write_record  # noqa: E402

from gpudoc.train.state import checkpoint  # noqa: E402
from tests.train.support import command, environment, write_workload  # noqa: E402

PHASES = {
    "step": {"model": {"sleep": 0.05}},
    "loader_wait": {"data": {"sleep": 0.3}},
    "evaluation": {"evaluated": True, "eval_every": 1},
    "checkpoint": {"model": {"hidden": 200_000}, "checkpoint_every": 1},
}
CODES = {signal.SIGINT: 130, signal.SIGTERM: 75, signal.SIGUSR1: 75}


def trial(folder: pathlib.Path, phase: str, number: signal.Signals, wait_s: float) -> str:
    """'' when all is as promised, else what is not."""
    write_workload(folder, log_every=1, **PHASES[phase])
    where = ("--device", "cpu", "--model", "cfg.yaml", "--profile", "off", "--no-preflight", "--run-dir", "run")
    line = command(*where, "--num-workers", 2, "--steps", 10**6)
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(line, cwd=folder, env=environment(), stdout=quiet, stderr=quiet, start_new_session=True)
    run = folder / "run"
    while process.poll() is None and not (run / "metrics.jsonl").exists():
        time.sleep(0.01)
    while process.poll() is None and not (run / "metrics.jsonl").read_text().count("\n"):
        time.sleep(0.01)
    time.sleep(wait_s)
    children = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, number)
    try:
        code = process.wait(90)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return "hangs"
    if code != CODES[number]:
        return f"exit code {code}"
    good, bad = checkpoint.newest_good(run / "checkpoints")
    said = json.loads((run / "summary.json").read_text())
    if bad or good is None or good.name != f"step-{said['steps']}":
        return f"saved {good}, said {said['steps']}"
    _, alive = psutil.wait_procs(children, timeout=5)
    return f"{len(alive)} processes left" if alive else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    generator = random.Random(options.seed)
    rows: dict[str, dict[str, int]] = {phase: {"tried": 0, "saved": 0} for phase in PHASES}
    failures = []
    for count in range(options.count):
        phase = list(PHASES)[count % len(PHASES)]
        number = generator.choice(list(CODES))
        folder = pathlib.Path(tempfile.mkdtemp(prefix="train-signals-"))
        wrong = trial(folder, phase, number, generator.random())
        shutil.rmtree(folder, ignore_errors=True)
        rows[phase]["tried"] += 1
        rows[phase]["saved"] += not wrong
        if wrong:
            failures.append(f"{phase} {number.name}: {wrong}")
            print(failures[-1], file=sys.stderr)
    results = {"phases": rows, "failures": failures}
    print(json.dumps(results, indent=1))
    if options.record:
        write_record("train-signals", {"what": __doc__.splitlines()[0], "results": results})
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
