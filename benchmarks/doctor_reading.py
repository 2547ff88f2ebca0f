"""How much time and memory `gpudoc doctor` takes to read ordinary, large and broken files, and to compare a fleet.

    python benchmarks/doctor_reading.py [--runs 3] [--before CHECKOUT] [--texts FOLDER] [--no-record]

Each input is made here, read in a separate process (`gpudoc doctor FILE --json`), median of the runs; the start of an
empty command (`gpudoc --version`) is measured between them, as the part that is not reading. It also measures the CPU
time of importing the judging code, and of one text among many in one process: each example of the signatures, or each
`input` of the YAML in FOLDER. With --before, another checkout does the same in turn, so that a busy machine slows both.
Targets: 200 MB, a line of 10 MB and every broken file within 5 s and 500 MB; 64 reports within 2 s; 5 ms a text; 1 s
for a text that holds every message doctor knows.
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
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from gpudoc.doctor.diagnose import diagnose  # noqa: E402
from gpudoc.doctor.document import dump  # noqa: E402
from gpudoc.doctor.model import Evidence  # noqa: E402
from gpudoc.facts.model import Driver, Gpu, Machine, TorchBuild  # noqa: E402
from gpudoc.knowledge import signature_rows  # noqa: E402

IMPORTING = """
import time
began = time.process_time()
import gpudoc.doctor.registry
print((time.process_time() - began) * 1e3)
"""
READING = """
import json, sys, time
from gpudoc.doctor.examine import examine_text
texts = [text.encode() for text in json.load(open(sys.argv[1]))]
def read():
    began = time.process_time()
    for text in texts:
        examine_text([("report.txt", text)])
    return time.process_time() - began
read()
print(read() * 1e3 / len(texts))
"""
FAULT = "RuntimeError: CUDA error: an illegal memory access was encountered\n"


def signatures() -> tuple[signature_rows.Signature, ...]:
    folder = pathlib.Path(signature_rows.__file__).with_name("signatures")
    return signature_rows.load_folder(folder, examples=True)


def ordinary(folder: pathlib.Path | None) -> list[str]:
    """Texts of the size that people paste: those of a folder, or an example of each message."""
    if folder is None:
        return [example for row in signatures() for example in row.examples]
    return [str(yaml.safe_load(path.read_text("utf-8"))["input"]) for path in sorted(folder.glob("*.yaml"))]


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
    every = "\n".join(example for row in signatures() for example in row.examples)
    texts = {
        "every message that doctor knows": (every + "\n", "findings"),
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


def run(arguments: list[str], tree: pathlib.Path) -> tuple[float, str]:
    """Seconds and all output of one command of a checkout."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "gpudoc", *arguments], capture_output=True, text=True, cwd=tree, check=False
    )
    return time.perf_counter() - began, done.stdout + done.stderr


def cost(arguments: list[str], tree: pathlib.Path) -> tuple[int, float]:
    """Peak resident bytes and CPU seconds of one command, as the kernel counts them, no matter what else runs."""
    code = (
        "import resource,subprocess,sys;subprocess.run([sys.executable,'-m','gpudoc',*sys.argv[1:]],"
        "stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL);"
        "u=resource.getrusage(resource.RUSAGE_CHILDREN);print(u.ru_maxrss*1024,u.ru_utime+u.ru_stime)"
    )
    command = [sys.executable, "-c", code, *arguments]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tree, check=True).stdout.split()
    return int(said[0]), float(said[1])


def measured(code: str, arguments: list[str], tree: pathlib.Path) -> float:
    """The number that a program prints in a separate process."""
    command = [sys.executable, "-c", code, *arguments]
    return float(subprocess.run(command, capture_output=True, text=True, cwd=tree, check=True).stdout.split()[-1])


def in_one_process(runs: int, texts: list[str], trees: list[pathlib.Path], folder: pathlib.Path) -> list[str]:
    """Rows of the import and of a text among many, the checkouts in turn."""
    given = folder / "ordinary.json"
    given.write_text(json.dumps(texts))
    rows = []
    for label, code, arguments in (
        ("import of what judges", IMPORTING, []),
        (f"a text of {len(texts)} in one process", READING, [str(given)]),
    ):
        taken = [[measured(code, arguments, tree) for tree in trees] for _ in range(max(runs, 3))]
        cells = [f"{statistics.median(column):.1f} ({min(column):.1f})" for column in zip(*taken, strict=True)]
        rows.append(f"| {label} | {' | '.join(cells)} |")
    return rows


def reading(runs: int, trees: list[pathlib.Path], folder: pathlib.Path) -> tuple[list[str], float]:
    """Rows of the inputs, each from a separate process, the checkouts in turn; and the seconds of an empty command."""
    rows, empty = [], []
    for label, (files, expected) in inputs(folder).items():
        arguments = ["doctor", *files, "--json"]
        times: list[list[float]] = [[] for _ in trees]
        right = []
        for _ in range(runs):
            empty.append(run(["--version"], trees[0])[0])
            for tree, column in zip(trees, times, strict=True):
                seconds, said = run(arguments, tree)
                column.append(seconds)
                right.append(expected in said and "a fault of gpudoc" not in said)
        cells = []
        for tree, column in zip(trees, times, strict=True):
            peak, cpu = cost(arguments, tree)
            cells.append(f"{statistics.median(column):.2f} | {cpu:.2f} | {peak / 1e6:.0f}")
        rows.append(f"| {label} | {' | '.join(cells)} | {'yes' if all(right) else 'NO'} |")
    return rows, statistics.median(empty)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--before", type=pathlib.Path)
    options.add_argument("--texts", type=pathlib.Path)
    options.add_argument("--no-record", action="store_true")
    options = options.parse_args()
    trees = [ROOT] if options.before is None else [options.before.resolve(), ROOT]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ours = in_one_process(options.runs, ordinary(options.texts), trees, folder)
        rows, empty = reading(options.runs, trees, folder)
    commits = [
        subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=tree).stdout.strip()
        for tree in trees
    ]
    load = psutil.getloadavg()[0] / (psutil.cpu_count() or 1)
    columns = ["before, ", "now, "] if options.before else [""]
    under = (
        f"{datetime.date.today()}, commit {', '.join(commits)}, Python {platform.python_version()}, "
        f"{psutil.cpu_count()} CPUs, load {load:.1f} per CPU at the end. Median of {options.runs}, the checkouts in "
        f"turn; an empty command takes {empty:.2f} s here."
    )
    lines = [
        "# gpudoc doctor: ordinary, large and broken inputs, and a fleet",
        "",
        under,
        "",
        f"| CPU time, median (least) | {' | '.join(f'{column}ms' for column in columns)} |",
        f"|---|{'---|' * len(trees)}",
        *ours,
        "",
        f"| input | {' | '.join(f'{c}seconds | CPU seconds | peak MB' for c in columns)} | right answer |",
        f"|---|{'---|---|---|' * len(trees)}---|",
        *rows,
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if not options.no_record:
        (ROOT / "records" / f"{datetime.date.today()}-doctor-reading.md").write_text(text)


if __name__ == "__main__":
    main()
