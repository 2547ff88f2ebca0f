"""NVML of the stand-in agrees with what processes do, and shows MIG."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.standin

ASK = """
import json, os, pynvml
pynvml.nvmlInit()
h = pynvml.nvmlDeviceGetHandleByIndex(0)
"""


def test_memory_and_processes_are_those_of_the_process_that_holds_them(standin):
    done = standin(memory="4G").python(
        ASK + "import torch; kept = torch.empty(1 << 30, dtype=torch.uint8, device='cuda')\n"
        "rows = pynvml.nvmlDeviceGetComputeRunningProcesses(h)\n"
        "used = pynvml.nvmlDeviceGetMemoryInfo(h).used\n"
        "print(json.dumps([used, [[row.pid == os.getpid(), row.usedGpuMemory] for row in rows]]))"
    )
    held = (1 << 30) + (450 << 20)
    assert json.loads(done.stdout) == [held, [[True, held]]], done.stderr


@pytest.mark.parametrize(("mig", "shown"), [("", "not supported"), ("0", [0, 0]), ("3", [1, 3])])
def test_mig_as_nvml_shows_it(standin, mig, shown):
    done = standin(mig=mig).python(
        ASK + "try:\n    now, _ = pynvml.nvmlDeviceGetMigMode(h)\n"
        "except pynvml.NVMLError_NotSupported:\n    print(json.dumps('not supported')); raise SystemExit\n"
        "found = 0\n"
        "for i in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(h)):\n"
        "    try:\n        found += bool(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(h, i))\n"
        "    except pynvml.NVMLError_NotFound:\n        pass\n"
        "print(json.dumps([now, found]))\n"
    )
    assert json.loads(done.stdout) == shown, done.stderr


def test_with_mig_a_process_sees_one_gpu_with_its_part_of_the_memory(standin):
    done = standin(mig=4, memory="8G").python(
        "import torch; p = torch.cuda.get_device_properties(0)\n"
        "print(torch.cuda.device_count(), p.total_memory >> 30, p.name)\n"
        "torch.empty(3 << 30, dtype=torch.uint8, device='cuda')"
    )
    assert done.stdout == "1 2 Stand-in GPU MIG 1g\n", done.stderr
    assert "OutOfMemoryError" in done.stderr


def test_doctor_sees_the_instances(standin):
    done = standin(mig=2).gpudoc("doctor", "--json")
    gpu = json.loads(done.stdout)["facts"]["gpus"][0]
    assert (gpu["mig_enabled"], gpu["mig_instances"]) == (True, 2)
