"""The advice of `gpudoc doctor --pid` on loader workers, tried: the gain that it names beside the gain of setting it.

    python campaigns/watch_advice.py [--only NAME;...] [--seconds 15] [--timed 8] [--record FILE]
                                      [--results FILE [--resume] [--budget SECONDS]]

Twelve data sets that wait, compute or do both train without workers on a small net. Each is watched, its advice is
taken as written, and the speed is measured before and after. Where no workers are advised, one is tried, since that
may be wrong too; its gain is to be the one that is named, or none. Wanted: the gain within a factor of 1.3 in nine of
ten, and no number of workers that PyTorch warns about, unless the waiting was measured and said. Run it alone on a
quiet machine, where it takes some eleven minutes: neighbours change both speeds.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "benchmarks"))
from in_parts import Parts, add_options, open_parts

ROOT = pathlib.Path(__file__).resolve().parents[1]
# milliseconds of waiting and of computing for each sample, and of computing for each step
DATA_SETS = {
    "waits 1": (1, 0, 20), "waits 4": (4, 0, 20), "waits 10": (10, 0, 20), "waits 30": (30, 0, 20),
    "computes 1": (0, 1, 20), "computes 3": (0, 3, 20), "computes 8": (0, 8, 20), "computes 2, long step": (0, 2, 60),
    "both 2+2": (2, 2, 20), "both 8+2": (8, 2, 20), "both 2+8": (2, 8, 20), "both 5+1, long step": (5, 1, 80),
}  # fmt: skip
WITHIN, SHARE, WARM_S = 1.3, 0.9, 4.0


def train(waits_ms: float, computes_ms: float, step_ms: float, workers: int, speed: str) -> None:
    """The job: a net on one thread, batches of 8, and each step's moment appended to a file."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    torch.set_num_threads(1)

    def burn(milliseconds: float) -> None:
        until = time.thread_time() + milliseconds / 1e3
        while time.thread_time() < until:
            torch.ones(64, 64).matmul(torch.ones(64, 64))

    class Samples(Dataset):
        def __len__(self) -> int:
            return 1 << 20

        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            time.sleep(waits_ms / 1e3)
            burn(computes_ms)
            return torch.full((64,), float(index)), torch.zeros(1)

    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    with pathlib.Path(speed).open("a", buffering=1) as moments:
        for inputs, targets in DataLoader(Samples(), batch_size=8, num_workers=workers):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            burn(step_ms)
            loss.backward()
            optimizer.step()
            moments.write(f"{time.monotonic()}\n")


class Job:
    """One training as a process group of its own, killed at the end."""

    def __init__(self, name: str, workers: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.speed = pathlib.Path(self._folder.name, "speed")
        self.errors = pathlib.Path(self._folder.name, "errors")
        command = [sys.executable, __file__, "--job", name, "--workers", str(workers), "--speed", str(self.speed)]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, stderr=errors, start_new_session=True)

    def __enter__(self) -> Job:
        while not self.speed.exists() or self.speed.stat().st_size == 0:
            if self.process.poll() is not None:
                raise SystemExit(f"the job ended:\n{self.errors.read_text()}")
            time.sleep(0.2)
        time.sleep(WARM_S)
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._folder.cleanup()

    def steps_per_s(self, seconds: float) -> float:
        """Steps in the next `seconds`, counted from step to step."""
        before = len(self.speed.read_text().splitlines())
        time.sleep(seconds)
        moments = [float(line) for line in self.speed.read_text().splitlines()][before:]
        return (len(moments) - 1) / (moments[-1] - moments[0]) if len(moments) > 2 else 0.0


def look(pid: int, seconds: float) -> dict[str, object]:
    """The cause, the gain and the workers that doctor names (0 workers without advice), and the sentence."""
    command = [sys.executable, "-m", "gpudoc", "doctor", "--pid", str(pid), "--seconds", str(seconds), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    first = next(iter(json.loads(done.stdout)["findings"]), None)
    if first is None:
        return {"cause": "none", "workers": 0, "estimated": 1.0, "say": ""}
    facts = {seen["fact"]: seen["value"] for seen in first["evidence"]}
    say = next((r["say"] for r in first["fix"] if "num_workers=" in r["say"]), "")
    # where several numbers are to be tried, the last is the one that the gain belongs to
    workers = re.findall(r"num_workers=(\d+)", say)
    gain = facts.get("estimated_gain") if workers else facts.get("with_workers")
    return {
        "cause": first["id"],
        "workers": int(workers[-1]) if workers else 0,
        "estimated": float(gain.partition("x")[0]) if gain else 1.0,
        "say": say,
    }


def try_one(name: str, watched_s: float, timed_s: float) -> dict[str, object]:
    """One data set: watched, mended as advised, measured before and after."""
    with Job(name, 0) as job:
        advice = look(job.process.pid, watched_s)
        before = job.steps_per_s(timed_s)
    with Job(name, int(str(advice["workers"])) or 1) as job:
        after = job.steps_per_s(timed_s)
        warned = "worker processes in total" in job.errors.read_text()
    real, gain = after / before if before else 0.0, float(str(advice["estimated"]))
    ratio = max(real / gain, gain / real) if real else float("inf")
    unsaid = warned and "waits" not in str(advice["say"])
    return {"data": name, **advice, "real": round(real, 2), "ratio": round(ratio, 2), "warned": unsaid}


def summary(rows: list[dict[str, object]]) -> str:
    """How many gains were close, and how many warnings came unsaid."""
    warned = sum(bool(row["warned"]) for row in rows)
    return f"{close(rows)} of {len(rows)} within a factor of {WITHIN}; {warned} with a warning of PyTorch's unsaid"


def close(rows: list[dict[str, object]]) -> int:
    """The rows whose estimate was near what came of it."""
    return sum(float(str(row["ratio"])) <= WITHIN for row in rows)


def write_record(place: pathlib.Path, parts: Parts, asked: argparse.Namespace) -> None:
    """All rows as a table, with the machine, its load and what they say together."""
    titles = {"data": "ms: waits, computes, step", "cause": "first verdict", "workers": "workers"}
    titles |= {"estimated": "estimated gain", "real": "real gain", "ratio": "factor between"}
    head = ["| data set | " + " | ".join(titles.values()) + " |", "|" + "---|" * (len(titles) + 1)]
    lines = []
    for row in parts.rows:
        cells = {**row, "data": ", ".join(map(str, DATA_SETS[row["data"]]))}
        lines.append("| " + " | ".join([row["data"], *(str(cells[name]) for name in titles)]) + " |")
    command = f"--seconds {asked.seconds:g} --timed {asked.timed:g}"
    made = f"Command: `python campaigns/watch_advice.py {command}`; CPUs {len(os.sched_getaffinity(0))}; one pair each."
    title = "# The advice of gpudoc doctor --pid on loader workers, tried"
    place.write_text(
        "\n".join([title, "", f"{parts.about()}.", made, "", f"{summary(parts.rows)}.", "", *head, *lines, ""])
    )


def main() -> int:
    """Try each data set and print a row for it; exit code 1 when the advice is not as good as wanted."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="")
    options.add_argument("--seconds", type=float, default=15.0, help="to watch each for")
    options.add_argument("--timed", type=float, default=8.0, help="seconds to time each speed for")
    add_options(options)
    options.add_argument("--job", help=argparse.SUPPRESS)
    options.add_argument("--workers", type=int, default=0, help=argparse.SUPPRESS)
    options.add_argument("--speed", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.job:
        train(*DATA_SETS[asked.job], asked.workers, asked.speed)
        return 0
    parts = open_parts(asked)
    done = {row["data"] for row in parts.rows}
    for name in [name for name in DATA_SETS if not asked.only or name in asked.only.split(";")]:
        if name in done:
            continue
        if parts.time_is_up():
            print("time is up; the rest is left for --resume", flush=True)
            break
        parts.add(**try_one(name, asked.seconds, asked.timed))
        print(json.dumps(parts.rows[-1]), flush=True)
        if asked.record:
            write_record(asked.record, parts, asked)
    print(summary(parts.rows))
    return int(close(parts.rows) < SHARE * len(parts.rows) or any(row["warned"] for row in parts.rows))


if __name__ == "__main__":
    sys.exit(main())
