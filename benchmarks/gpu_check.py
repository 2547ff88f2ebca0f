"""On a machine with a GPU: the tests marked `gpu`, then doctor, bench, tune and train, and a dated record of all of it.

    python benchmarks/gpu_check.py [--only tests,bench] [--seconds 540]

The record goes to benchmarks/records/<date>-<GPU>.md and names the GPU and the versions, never the host. A step that
fails is in the record with its output, and the exit code is 1.
"""

import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
GPUDOC = [sys.executable, "-m", "gpudoc"]
SHARES = ("8GiB", "16GiB", "24GiB")
IDENTITY = (
    "import json, torch\n"
    "p = torch.cuda.get_device_properties(0)\n"
    "print(json.dumps({'gpu': p.name, 'memory_bytes': p.total_memory, 'count': torch.cuda.device_count(),\n"
    "                  'capability': [p.major, p.minor], 'torch': torch.__version__, 'cuda': torch.version.cuda}))\n"
)


def steps(folder):
    """(name, command, seconds it may take), in the order of what a cut-off run should have seen first."""
    yield "tests", [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests"], 400
    yield "doctor", [*GPUDOC, "doctor", "--verbose"], 60
    yield "bench", [*GPUDOC, "bench", "--out", str(folder / "bench.json")], 150
    yield "tune", [*GPUDOC, "tune", "--model", "quickstart", "--budget", "2m", "--out", str(folder / "p.yaml")], 200
    train = [*GPUDOC, "train", "--model", "quickstart", "--run-dir", str(folder / "run")]
    yield "train", [*train, "--profile", str(folder / "p.yaml")], 200
    yield "prove-resume", [*GPUDOC, "train", "--model", "quickstart", "--prove-resume", "--steps", "20"], 120
    for share in SHARES:
        limited = ["tune", "--model", "quickstart", "--memory-limit", share, "--only", "batch", "--budget", "60s"]
        yield f"tune under {share}", [*GPUDOC, *limited, "--out", str(folder / f"{share}.yaml")], 120
    for script in ("bench_gpu.py", "plan_gpu.py", "tune_gpu.py", "train_overhead.py"):
        if (ROOT / "benchmarks" / script).exists():
            yield script, [sys.executable, f"benchmarks/{script}"], 300


def run(command, limit_s):
    start = time.monotonic()
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=limit_s)
        code, output = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        code, output = 124, f"{late.stdout or ''}{late.stderr or ''}\n(cut after {limit_s} s)"
    return code, output, time.monotonic() - start


def identity():
    done = subprocess.run([sys.executable, "-c", IDENTITY], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def commit():
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "no git here"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="", help="names of steps, comma-separated")
    options.add_argument("--seconds", type=float, default=1500, help="time for everything; later steps are left out")
    chosen = options.parse_args()
    device = identity()
    if device is None:
        sys.exit("torch sees no GPU here; gpudoc doctor says why")
    end = time.monotonic() + chosen.seconds
    wanted = set(filter(None, chosen.only.split(",")))
    stem = re.sub(r"[^A-Za-z0-9]+", "-", device["gpu"]).strip("-")
    record = ROOT / "benchmarks" / "records" / f"{datetime.date.today().isoformat()}-{stem}.md"
    text = [f"# {device['gpu']}, {datetime.date.today().isoformat()}, commit {commit()}", "", f"`{json.dumps(device)}`"]
    failed = []
    with tempfile.TemporaryDirectory() as name:
        for step, command, limit_s in steps(pathlib.Path(name)):
            left = end - time.monotonic()
            if (wanted and step not in wanted) or left < 20:
                text += ["", f"## {step}", "", "left out: " + ("not asked for" if wanted else "no time left")]
                continue
            print(f"{step} ...", flush=True)
            code, output, seconds = run(command, min(limit_s, left))
            print(f"{step}: exit {code} after {seconds:.0f} s", flush=True)
            failed += [step] if code else []
            shown = re.sub(r"/[^\s:]*/", "", output)[-12_000:]
            text += ["", f"## {step}: exit {code}, {seconds:.0f} s", "", "```text", shown.rstrip(), "```"]
            record.write_text("\n".join(text) + "\n", "utf-8")
    print(f"{record.relative_to(ROOT)}; failed: {', '.join(failed) or 'none'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
