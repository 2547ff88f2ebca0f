"""Writes what the training benchmarks measured: dated, with commit, versions and machine, without names."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]


def write_record(name: str, figures: dict) -> pathlib.Path:
    """Write records/<date>-<name>.json; returns its path."""
    import torch

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    rows = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((row.partition(":")[2].strip() for row in rows if row.startswith("model name")), "unknown")
    now = datetime.datetime.now(datetime.timezone.utc)
    record = {
        "at": now.isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": model,
        "cores": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 1),
        **figures,
    }
    target = ROOT / "records" / f"{now:%Y-%m-%d}-{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(record, indent=1) + "\n")
    return target
