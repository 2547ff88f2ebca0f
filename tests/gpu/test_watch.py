"""gpudoc doctor --pid on jobs that use a real GPU: the causes that only its counters show."""

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest
import torch

from tests.standin.gpus import real_gpu

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "scripts"

OF_A_CARD = real_gpu("what keeps a card busy or waiting shows in counters that the stand-in does not model")
TWO_GPUS = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")

pytestmark = [pytest.mark.gpu, OF_A_CARD]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpu_healthy", "compute_bound"),
        ("gpu_sync", "gpu_sync_each_step"),
        ("gpu_launch", "launch_bound"),
        ("gpu_copies", "pageable_copies"),
        ("gpu_leak", "gpu_memory_leak"),
        ("healthy_conv", "training_on_cpu"),
        pytest.param("gpu_dataparallel", "dataparallel_imbalance", marks=TWO_GPUS),
    ],
)
def test_the_first_finding_on_a_gpu(name, expected, tmp_path):
    speed = tmp_path / "speed"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPEED_FILE": str(speed), "SCRIPT_SECONDS": "120"}
    job = subprocess.Popen([sys.executable, SCRIPTS / f"{name}.py"], env=environment, start_new_session=True)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and not (speed.exists() and speed.read_text().count("\n") > 8):
            assert job.poll() is None
            time.sleep(0.2)
        # memory that grows is looked for once a process has settled
        time.sleep(12)
        done = subprocess.run(
            [sys.executable, "-m", "gpudoc", "doctor", "--pid", str(job.pid), "--seconds", "12", "--json"],
            capture_output=True, text=True, env=environment, check=False,
        )  # fmt: skip
    finally:
        os.killpg(job.pid, 9)
        job.wait()
    document = json.loads(done.stdout)
    assert document["findings"][0]["id"] == expected, document
    assert document["watch"]["gpus"]
    assert document["crashed"] == []
