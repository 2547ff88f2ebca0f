"""Compares gpudoc bench on this CPU with other ways of measuring the same, in one dated record.

    python benchmarks/bench_cpu.py [--runs 10] [--quick] [--no-record]

1. memory copy and triad against a STREAM-like program in C, compiled here with gcc -O3 -march=native -fopenmp,
   best of alternating runs of each, because one binary can differ by half between two runs;
2. matmul against the best that torch reaches in a plain loop over the same sizes, alternating;
3. two full runs in a row: how many rows agree within the intervals that they state themselves;
4. ceilings computed for published GPUs against their data sheets.

About five minutes on two cores. Run it on an idle machine; what else ran is in the record.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import psutil
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from gpudoc.bench.ceilings import GpuSpec, matmul_ceiling, memory_ceiling  # noqa: E402
from gpudoc.bench.compare import compare  # noqa: E402
from gpudoc.bench.documents import load_record  # noqa: E402

TRIAD = r"""
#include <stdio.h>
#include <stdlib.h>
#include <omp.h>
/* Two of the kernels by which memory bandwidth is usually measured: c = a and a = b + s * c. */
int main(int argc, char **argv) {
    long n = atol(argv[1]) / 8;
    double *a = aligned_alloc(64, n * 8), *b = aligned_alloc(64, n * 8), *c = aligned_alloc(64, n * 8);
    double copy = 1e9, triad = 1e9;
    (void)argc;
    #pragma omp parallel for
    for (long i = 0; i < n; i++) { a[i] = 1.0; b[i] = 2.0; c[i] = 0.0; }
    for (int turn = 0; turn < 20; turn++) {
        double start = omp_get_wtime();
        #pragma omp parallel for
        for (long i = 0; i < n; i++) c[i] = a[i];
        double middle = omp_get_wtime();
        #pragma omp parallel for
        for (long i = 0; i < n; i++) a[i] = b[i] + 3.0 * c[i];
        double end = omp_get_wtime();
        if (middle - start < copy) copy = middle - start;
        if (end - middle < triad) triad = end - middle;
    }
    printf("{\"memory_copy\": %f, \"memory_triad\": %f}\n", 16e-9 * n / copy, 24e-9 * n / triad);
    return a[n / 2] > 0 ? 0 : 1;
}
"""

BY_HAND = """
import json, time, torch
best = {}
for dtype, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16")):
    for size in (512, 1024, 2048, 4096):
        a, b, c = (torch.randn(size, size).to(dtype) for _ in range(3))
        torch.mm(a, b, out=c)
        end = time.perf_counter() + 0.8
        while time.perf_counter() < end:
            start = time.perf_counter()
            torch.mm(a, b, out=c)
            rate = 2 * size**3 / (time.perf_counter() - start) / 1e9
            best[name] = max(best.get(name, 0.0), rate)
print(json.dumps(best))
"""


def bench(folder, name, *arguments):
    path = folder / f"{name}.json"
    started = time.monotonic()
    command = [sys.executable, "-m", "gpudoc", "bench", "--device", "cpu", "--out", str(path), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if not path.exists():
        sys.exit(f"gpudoc bench failed: {done.stderr}")
    return load_record(path), done.stdout, time.monotonic() - started


def best_sample(record, name, **parameters):
    """The best sample of a row over all its processes."""
    rows = [
        row
        for row in record.measurements
        if row.name == name and all(row.parameters.get(key) == value for key, value in parameters.items())
    ]
    return max((value for row in rows for one in row.rounds for value in one), default=0.0)


def memory(folder, runs):
    source, program = folder / "triad.c", folder / "triad"
    source.write_text(TRIAD)
    subprocess.run(["gcc", "-O3", "-march=native", "-fopenmp", str(source), "-o", str(program)], check=True)
    ours, theirs = {}, {}
    for _ in range(runs):
        record, _, _ = bench(folder, "memory", "--only", "memory", "--quick")
        threads = record.environment["threads"]
        size = next(int(row.context["array_bytes"]) for row in record.measurements if row.name == "memory_copy")
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        done = subprocess.run([program, str(size)], capture_output=True, text=True, check=True, env=environment)
        for name, value in json.loads(done.stdout).items():
            theirs.setdefault(name, []).append(value)
            ours.setdefault(name, []).append(best_sample(record, name, threads=threads))
    lines = ["| kernel | gpudoc GB/s | program in C GB/s | ratio of the best | gpudoc's runs | the program's runs |"]
    lines += ["|---|---|---|---|---|---|"]
    for name in theirs:
        mine, other = max(ours[name]), max(theirs[name])
        spans = [f"{min(one):.1f} to {max(one):.1f}" for one in (ours[name], theirs[name])]
        lines.append(f"| {name} | {mine:.1f} | {other:.1f} | {mine / other:.3f} | {spans[0]} | {spans[1]} |")
    return lines


def matmul(folder, runs):
    ours, theirs = {}, {}
    for _ in range(runs):
        record, _, _ = bench(folder, "matmul", "--only", "clock,matmul", "--quick")
        done = subprocess.run([sys.executable, "-c", BY_HAND], capture_output=True, text=True, check=True)
        for dtype, value in json.loads(done.stdout).items():
            theirs.setdefault(dtype, []).append(value)
            ours.setdefault(dtype, []).append(best_sample(record, "cpu_matmul", dtype=dtype))
    lines = ["| type | gpudoc GFLOP/s | by hand GFLOP/s | ratio |", "|---|---|---|---|"]
    for dtype in theirs:
        mine, other = max(ours[dtype]), max(theirs[dtype])
        lines.append(f"| {dtype} | {mine:.1f} | {other:.1f} | {mine / other:.3f} |")
    return lines


def repeat(folder, *arguments):
    first, _, first_s = bench(folder, "first", *arguments)
    second, screen, second_s = bench(folder, "second", *arguments)
    comparison = compare(first, second)
    same = [one for one in comparison.changes if one.judgement == "same"]
    apart = [one for one in comparison.changes if one.judgement in ("faster", "slower", "doubtful")]
    judged = len(same) + len(apart)
    share = len(same) / max(1, judged)
    lines = [f"{len(same)} of {judged} rows agree within their stated intervals ({share:.1%})."]
    lines += [f"The runs took {first_s:.0f} s and {second_s:.0f} s."]
    lines += [f"- apart: {one.row.key}: {one.old.value:.4g} then {one.row.value:.4g} {one.row.unit}" for one in apart]
    return lines, screen


def ceilings():
    cards = yaml.safe_load((ROOT / "tests" / "bench" / "published_gpus.yaml").read_text())["gpus"]
    lines = ["| GPU | type | computed | published | difference |", "|---|---|---|---|---|"]
    worst = 0.0
    for card in cards:
        major, minor = card["capability"].split(".")
        spec = GpuSpec(
            capability=(int(major), int(minor)),
            sm_count=card["sms"],
            brand=card["brand"],
            device_id=card.get("device_id"),
            sm_clock_mhz=card["mhz"],
            memory_clock_mhz=card["memory"][0],
            memory_bus_bits=card["memory"][1],
        )
        figures = [(dtype, matmul_ceiling(spec, dtype).value, peak) for dtype, peak in card["peaks"].items()]
        figures.append(("memory GB/s", memory_ceiling(spec).value, card["memory"][2]))
        for name, computed, published in figures:
            worst = max(worst, abs(computed / published - 1))
            lines.append(
                f"| {card['name']} | {name} | {computed:.1f} | {published} | {computed / published - 1:+.2%} |"
            )
    return [f"{len(cards)} entries, largest difference {worst:.2%}.", "", *lines]


def commit():
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no git here"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=10, help="alternating runs of the memory comparison")
    options.add_argument("--quick", action="store_true", help="two quick runs in a row instead of two full ones")
    options.add_argument("--no-record", action="store_true", help="print only")
    chosen = options.parse_args()
    load = psutil.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        agreement, screen = repeat(folder, *(["--quick"] if chosen.quick else []))
        text = [
            f"# gpudoc bench on a CPU, {datetime.date.today().isoformat()}, commit {commit()}",
            "",
            f"{screen.splitlines()[0]}. Load average at the start: {load:.1f}. `python benchmarks/bench_cpu.py`",
            "",
            f"## Two {'quick' if chosen.quick else 'full'} runs in a row",
            "",
            *agreement,
            "",
            f"## Memory beside a program in C, best of {chosen.runs} alternating runs",
            "",
            *memory(folder, chosen.runs),
            "",
            "## Matmul beside a plain loop of torch, best of 3 alternating runs",
            "",
            *matmul(folder, 3),
            "",
            "## The screen of the second full run",
            "",
            "```text",
            *(line.rstrip() for line in screen.splitlines()),
            "```",
            "",
            "## Ceilings beside published peaks",
            "",
            *ceilings(),
        ]
    print("\n".join(text))
    if not chosen.no_record:
        record = ROOT / "records" / f"{datetime.date.today().isoformat()}-bench-cpu.md"
        record.write_text(re.sub(r"[ \t]+$", "", "\n".join(text), flags=re.MULTILINE) + "\n", "utf-8")
        print(record.relative_to(ROOT))


if __name__ == "__main__":
    main()
