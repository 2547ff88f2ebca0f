"""kill -9 at random moments, at least a quarter of them inside the checkpoint writer: does a run always go on?

    python campaigns/train_kill.py [--kills 200] [--seed 0] [--record]

One run of a small workload is killed again and again and always started with the same command. Half of the kills come
at a random time after the first logged step, half as soon as a checkpoint is being written (its folder `.tmp-` is
there). After each kill the newest checkpoint must verify, and the next start must go on from it or a later one. At the
end the finished run must equal one that nobody killed.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from train_record import write_record  # noqa: E402

from gpudoc.train.start.identity import digest  # noqa: E402
from gpudoc.train.state import checkpoint  # noqa: E402
from tests.train.support import command, environment, write_workload  # noqa: E402


def start(folder: pathlib.Path, steps: int, run: str) -> subprocess.Popen:
    line = command(
        "--device",
        "cpu",
        "--model",
        "cfg.yaml",
        "--profile",
        "off",
        "--no-preflight",
        "--steps",
        steps,
        "--run-dir",
        run,
    )
    return subprocess.Popen(
        line,
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def newest_step(run: pathlib.Path) -> int:
    found = checkpoint.found_in(run / "checkpoints")
    return found[0][0] if found else 0


def kill_once(process: subprocess.Popen, run: pathlib.Path, inside: bool, generator: random.Random) -> bool:
    """Kill at a random moment, or inside the writer; whether a checkpoint was half there when the process died."""
    before = newest_step(run)
    while process.poll() is None and newest_step(run) == before:
        time.sleep(0.002)
    if inside:
        while process.poll() is None and not list((run / "checkpoints").glob("step-*.tmp-*")):
            pass
        time.sleep(generator.random() * 0.004)
    else:
        time.sleep(generator.random() * 0.2)
    process.kill()
    process.wait()
    return bool(list((run / "checkpoints").glob("step-*.tmp-*")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    generator = random.Random(options.seed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="train-kill-"))
    model = {"hidden": 20_000, "dropout": 0.2}
    write_workload(folder, model=model, data={"draw": "torch"}, checkpoint_every=3, keep=2, log_every=1)
    run, steps = folder / "run", 10**6
    inside_count, began, lost, bad = 0, time.monotonic(), 0, 0
    for number in range(options.kills):
        process = start(folder, steps, "run")
        inside_count += kill_once(process, run, number % 2 == 0, generator)
        checkpoint.settle_ruins(run / "checkpoints")
        good, damaged = checkpoint.newest_good(run / "checkpoints")
        bad += len(damaged)
        lost += good is None
        if number % 20 == 19:
            print(f"{number + 1} kills, {inside_count} inside the writer, {bad} bad, {lost} lost", file=sys.stderr)
    last = newest_step(run) + 5
    assert start(folder, last, "run").wait() == 0
    assert start(folder, last, "whole").wait() == 0
    ends = [checkpoint.load(folder / name / "checkpoints" / f"step-{last}") for name in ("run", "whole")]
    same = digest([dict(ends[0].model), dict(ends[0].optimizer)]) == digest(
        [dict(ends[1].model), dict(ends[1].optimizer)]
    )
    shutil.rmtree(folder)
    results = {
        "kills": options.kills,
        "inside_the_writer": inside_count,
        "bad_checkpoints_under_their_final_name": bad,
        "times_nothing_to_resume": lost,
        "steps_at_the_end": last,
        "equal_to_an_uninterrupted_run": same,
        "seconds": round(time.monotonic() - began),
    }
    print(json.dumps(results, indent=1))
    if options.record:
        write_record("train-kill", {"what": __doc__.splitlines()[0], "results": results})
    sys.exit(0 if same and not bad and not lost else 1)


if __name__ == "__main__":
    main()
