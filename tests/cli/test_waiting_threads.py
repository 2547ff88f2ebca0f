"""What gpudoc computes itself lets waiting threads sleep soon; a command of the user's keeps what it has."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from gpudoc.process.openmp import SPINS, SPINS_IN_A_CROWD, WAITING, own_openmp

needs_libgomp = pytest.mark.skipif(own_openmp().runtime != "libgomp", reason="torch has another OpenMP runtime here")


def gpudoc(folder, *arguments, **variables):
    known = {name: value for name, value in os.environ.items() if name not in WAITING}
    command = [sys.executable, "-m", "gpudoc", *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, env={**known, **variables}, capture_output=True, text=True, timeout=280, check=False
    )


def spin_count(done):
    return json.loads(done.stdout)["environment"].get("gomp_spincount")


@needs_libgomp
def test_bench_says_how_its_threads_wait(tmp_path):
    line = ("bench", "--quick", "--device", "cpu", "--only", "clock", "--json")
    # whichever the rest of this machine asked for at its start
    assert spin_count(gpudoc(tmp_path, *line)) in (SPINS, SPINS_IN_A_CROWD)
    assert spin_count(gpudoc(tmp_path, *line, GOMP_SPINCOUNT="77")) == "77"


@needs_libgomp
@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--gpus", "2")], ids=["alone", "ranks"])
def test_a_training_has_it_before_torch_is_loaded(tmp_path, more):
    """libgomp shows with OMP_DISPLAY_ENV what it has read, which it does once."""
    line = ("train", "--model", "quickstart", "--device", "cpu", "--steps", "1", "--no-preflight", "--plain", *more)
    done = gpudoc(tmp_path, *line, OMP_DISPLAY_ENV="verbose")
    assert done.returncode == 0, done.stderr
    counts = {count for count in (SPINS, SPINS_IN_A_CROWD) if f"GOMP_SPINCOUNT = '{count}'" in done.stderr}
    # the ranks have what the first process found
    assert len(counts) == 1


def test_a_command_keeps_what_it_has(tmp_path):
    code = "import os; print([name for name in ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY') if name in os.environ])"
    done = gpudoc(tmp_path, "train", "--profile", "off", "--", sys.executable, "-c", code)
    assert done.stdout == "[]\n", done.stderr
