"""How long and with how much memory `gpudoc doctor` reads what is large or broken, and compares a fleet.

    python benchmarks/doctor_reading.py [--runs 3] [--no-record]

Each input is made here, read in a process of its own (`gpudoc doctor FILE --json`), median of the runs; the start of an
empty command (`gpudoc --version`) is measured between them, as the part that is not reading. Targets: 200 MB, a line of
10 MB and every broken file within 5 s and 500 MB; 64 reports within 2 s.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time

import psutil

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from gpudoc.doctor.diagnose import diagnose  # noqa: E402
from gpudoc.doctor.document import dump  # noqa: E402
from gpudoc.doctor.model import Evidence  # noqa: E402
from gpudoc.facts.model import Driver, Gpu, Machine, TorchBuild  # noqa: E402

FAULT = "RuntimeError: CUDA error: an illegal memory access was encountered\n"


def inputs(folder: pathlib.Path) -> dict[str, tuple[list[str], str]]:
    """Name -> files and the words that the answer must hold."""
    rng = random.Random(1)
    step = "2026-01-01 10:00:00 INFO Epoch [%d][%d/1000] lr: 1e-3 time: 0.387 data_time: 0.008 loss: 1.2345\n"
    block = "".join(step % (i // 1000, i % 1000) for i in range(100_000))
    words = [
        "the",
        "model",
        "training",
        "loss",
        "epoch",
        "gpu",
        "cuda",
        "step",
        "worker",
        "loader",
        "memory",
        "torch",
        "file",
        "line",
        "module",
        "batch",
        "rank",
        "node",
    ]
    prose = "".join(" ".join(rng.choices(words, k=14)) + f" {rng.random()}\n" for _ in range(20_000))
    texts = {
        "log of 200 MB": (block * (200_000_000 // len(block)) + FAULT, "illegal_memory_access"),
        "prose of 2 MB without two lines alike": (prose + FAULT, "illegal_memory_access"),
        "one line of 10 MB": ("step 1 loss 2.0 " * 650_000 + FAULT, "illegal_memory_access"),
        "UTF-16": (FAULT * 3, "illegal_memory_access"),
        "collect_env": (
            "PyTorch version: 2.6.0+cu124\nNvidia driver version: 470.57.02\nIs CUDA available: False\n",
            "driver_too_old",
        ),
    }
    files = {}
    for name, (text, expected) in texts.items():
        path = folder / f"{len(files)}.log"
        path.write_bytes(text.encode("utf-16" if name == "UTF-16" else "utf-8"))
        files[name] = ([str(path)], expected)
    binary = folder / "binary"
    binary.write_bytes(rng.randbytes(20_000_000))
    files["binary of 20 MB"] = ([str(binary)], "binary")
    (folder / "fleet").mkdir()
    reports = []
    for i in range(64):
        gpus = tuple(Gpu(index=n, name="NVIDIA H100") for n in range(8))
        driver = Driver(module_version="535.54.03" if i == 40 else "550.54.15")
        machine = Machine(gpus=gpus, driver=driver, torch=TorchBuild(version="2.6.0"))
        path = folder / "fleet" / f"node{i:02}.json"
        path.write_text(json.dumps(dump(diagnose(Evidence(source="machine", machine=machine)))))
        reports.append(str(path))
    files["64 reports"] = (reports, "node40")
    return files


def run(arguments: list[str]) -> tuple[float, str]:
    """Seconds and everything said by one command."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "gpudoc", *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return time.perf_counter() - began, done.stdout + done.stderr


def cost(arguments: list[str]) -> tuple[int, float]:
    """Peak resident bytes and CPU seconds of one command, as the kernel counts them, whatever else runs."""
    code = (
        "import resource,subprocess,sys;subprocess.run([sys.executable,'-m','gpudoc',*sys.argv[1:]],"
        "stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL);"
        "u=resource.getrusage(resource.RUSAGE_CHILDREN);print(u.ru_maxrss*1024,u.ru_utime+u.ru_stime)"
    )
    command = [sys.executable, "-c", code, *arguments]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout.split()
    return int(said[0]), float(said[1])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--no-record", action="store_true")
    options = options.parse_args()
    rows, empty = [], []
    with tempfile.TemporaryDirectory() as name:
        for label, (files, expected) in inputs(pathlib.Path(name)).items():
            times, said = [], ""
            for _ in range(options.runs):
                empty.append(run(["--version"])[0])
                seconds, said = run(["doctor", *files, "--json"])
                times.append(seconds)
            right = expected in said and "a fault of gpudoc" not in said
            rows.append((label, statistics.median(times), *cost(["doctor", *files, "--json"]), right))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT
    ).stdout.strip()
    load = psutil.getloadavg()[0] / (psutil.cpu_count() or 1)
    machine = (
        f"{datetime.date.today()}, commit {commit}, Python {platform.python_version()}, {psutil.cpu_count()} CPUs, "
        f"load {load:.1f} per CPU at the end. Median of {options.runs}; an empty command takes "
        f"{statistics.median(empty):.2f} s here."
    )
    lines = [
        "# gpudoc doctor: large and broken inputs, and a fleet",
        "",
        machine,
        "",
        "| input | seconds | CPU seconds | peak memory, MB | right answer |",
        "|---|---|---|---|---|",
        *(f"| {name} | {s:.2f} | {c:.2f} | {m / 1e6:.0f} | {'yes' if ok else 'NO'} |" for name, s, m, c, ok in rows),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if not options.no_record:
        (ROOT / "benchmarks" / "records" / f"{datetime.date.today()}-doctor-reading.md").write_text(text)


if __name__ == "__main__":
    main()
