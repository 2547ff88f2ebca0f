"""Checks commands that must work on every system: the help, a cause, a log, the demo, a config, the machine.

python tools/smoke.py        # with the Python that gpudoc is installed in; the exit code is 1 if anything fails
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

LOG = "step 1 loss 2.0\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n"
CONFIG = "model: {target: 'torch.nn:Linear', args: {in_features: 2, out_features: 2}}\n"
# arguments, allowed exit codes, and a text that the answer must contain
CALLS = (
    (("--help",), {0}, "gpudoc doctor"),
    (("doctor", "--explain", "driver_too_old"), {0}, "means:"),
    (("doctor", "train.log"), {1}, "gpu_ecc_error"),
    (("demo", "--all"), {0}, "gpu_newer_than_wheel_archs"),
    (("check", "cfg.yaml"), {0, 2}, "cfg.yaml"),
    (("doctor", "--json"), {0, 1}, '"schema"'),
)


def main(program: tuple[str, ...] = (sys.executable, "-m", "gpudoc")) -> int:
    """Call each and say what failed; returns 1 if something did."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.log").write_text(LOG, "utf-8")
        Path(folder, "cfg.yaml").write_text(CONFIG, "utf-8")
        for arguments, codes, word in CALLS:
            done = subprocess.run(
                [*program, *arguments], cwd=folder, capture_output=True, encoding="utf-8", errors="replace", check=False
            )
            problem = _problem(done, codes, word)
            failed += bool(problem)
            print(f"{'FAILED' if problem else 'ok':6} gpudoc {' '.join(arguments)}{problem}")
        if "--json" in arguments and not problem:
            print(_summary(json.loads(done.stdout)))
    return int(failed > 0)


def _problem(done: subprocess.CompletedProcess[str], codes: set[int], word: str) -> str:
    if done.returncode in codes and word in done.stdout + done.stderr:
        return ""
    return f"\n  exit code {done.returncode}, expected {sorted(codes)} and {word!r}\n{done.stdout}{done.stderr}"


def _summary(report: dict[str, object]) -> str:
    """How much of the machine could be checked here, for the log of the workflow."""
    skipped = report["skipped"]
    assert isinstance(skipped, list)
    unasked = sum("not asked on" in row["because"] for row in skipped)
    return f"{platform.platform()}: {report['verdict']}, {len(skipped)} causes not checked, {unasked} not asked there"


if __name__ == "__main__":
    sys.exit(main())
