"""The whole flow on the built-in quickstart: doctor, bench, tune, train; then what was found, in five lines.

    python tools/demo.py [--folder demo] [--budget 90s]

Each command is the one that a person would type, and is shown as such. A second run goes on where the first stopped.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]


def main() -> int:
    """Run the four commands in a folder and say what came out; exits with the code of the first that failed, else 0."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, default=Path("demo"))
    options.add_argument("--budget", default="90s", help="time for tuning")
    chosen = options.parse_args()
    folder: Path = chosen.folder
    (folder / ".gpudoc" / "profiles").mkdir(parents=True, exist_ok=True)
    start = time.monotonic()

    run(folder, "doctor", "--out", "doctor.json", allowed=(0, 1))
    doctor = read(folder / "doctor.json")
    device = "cpu" if doctor["verdict"] in ("broken", "unknown") else "auto"
    if device == "cpu":
        say("the GPU cannot be used (see above), so the rest runs on the CPU")
    run(folder, "bench", "--quick", "--device", device, "--out", "bench.json", allowed=(0, 1))
    profile = Path("quickstart.yaml")
    tuning = ("--budget", chosen.budget, "--out", str(Path(".gpudoc", "profiles") / profile))
    run(folder, "tune", "--model", "quickstart", "--device", device, *tuning)
    run(folder, "train", "--profile", "auto", "--model", "quickstart", "--device", device)
    closing(folder, doctor, time.monotonic() - start)
    return 0


def run(folder: Path, *arguments: str, allowed: tuple[int, ...] = (0,)) -> None:
    """Show a gpudoc command, run it in `folder`, and end with its exit code if that is not among `allowed`."""
    print(f"\n$ gpudoc {shlex.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "gpudoc", *arguments], cwd=folder, check=False)
    if done.returncode not in allowed:
        say(f"gpudoc {arguments[0]} ended with exit code {done.returncode}; the cause stands above")
        sys.exit(done.returncode)


def say(text: str) -> None:
    """One line of the demo itself, apart from what the commands print."""
    print(f"\n-- {text}", flush=True)


def read(path: Path) -> Document:
    """A JSON or YAML document that one of the commands wrote."""
    document: Document = yaml.safe_load(path.read_text("utf-8"))
    return document


def closing(folder: Path, doctor: Document, seconds: float) -> None:
    """Five lines: what each command found, and what to do next."""
    bench = read(folder / "bench.json")
    profile_path = folder / ".gpudoc" / "profiles" / "quickstart.yaml"
    runs = sorted(folder.glob("runs/*/summary.json"), key=lambda path: path.stat().st_mtime)
    say(f"the whole flow took {seconds:.0f} s; everything is under {folder}/")
    print(f"doctor  {doctor_line(doctor)}")
    print(f"bench   {bench_line(bench)}")
    print(f"tune    {tune_line(read(profile_path))} -> {profile_path}")
    print(f"train   {train_line(json.loads(runs[-1].read_text('utf-8')))} -> {runs[-1].parent}")
    print(
        "next    gpudoc tune --model cfg.yaml && gpudoc train --profile auto --model cfg.yaml   (docs/configuration.md)"
    )


def doctor_line(doctor: Document) -> str:
    """The verdict and the first finding."""
    first = next((finding["title"] for finding in doctor["findings"]), "no problem found")
    return f"{doctor['verdict']}: {first}; {len(doctor['passed'])} checks passed"


def bench_line(bench: Document) -> str:
    """The best memory and matmul figures, each with its share of the ceiling if there is one."""
    shown = []
    for label in ("memory", "matmul"):
        rows = [row for row in bench["measurements"] if label in row["name"] and row.get("value")]
        # the curve has sizes that fit into a cache
        rows = [row for row in rows if not row["name"].endswith("curve")]
        if rows:
            best = max(rows, key=lambda row: row["value"])
            share = best.get("share_of_ceiling")
            of = f" ({share:.0%} of the ceiling)" if share else ""
            shown.append(f"{label} {best['value']:.4g} {best['unit']}{of}")
    return "; ".join(shown) or "nothing measured"


def tune_line(profile: Document) -> str:
    """The chosen batch next to the largest and fastest, and the gain over the defaults."""
    settings, evidence = profile["settings"], profile.get("evidence", {})
    parts = [f"batch {settings['micro_batch']} in {settings['precision']}"]
    parts += [
        f"{name} {evidence[key]}"
        for name, key in (("largest", "largest_batch"), ("fastest", "fastest_batch"))
        if key in evidence
    ]
    if "speedup_over_default" in evidence:
        parts.append(f"{evidence['speedup_over_default']:.2f} times the default's speed")
    return ", ".join(parts)


def train_line(summary: Document) -> str:
    """How far the loss fell, and how that compares with a compressor."""
    evaluation = summary.get("evaluation") or {}
    text = f"loss {summary['first_loss']:.2f} -> {summary['final_loss']:.2f} in {summary['steps']} steps"
    if "bits_per_byte" in evaluation:
        text += f", {evaluation['bits_per_byte']:.2f} bits per byte on held-out text"
        text += f" (8 untrained, {evaluation['byte_frequencies_bits_per_byte']:.2f} by byte frequencies, "
        text += f"{evaluation['zlib_bits_per_byte']:.2f} by zlib)"
    return text


if __name__ == "__main__":
    sys.exit(main())
