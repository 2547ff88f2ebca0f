import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest

from gpudoc.facts.live.nvml import GpuRecorder, parse
from gpudoc.facts.live.tree import read_stat
from gpudoc.facts.model import Absent
from tests.waiting import wait_until

HEAD = {"gpus": [{"name": "Test GPU", "memory_total_bytes": 80, "pcie_generation_max": 4, "pcie_width_max": 16}]}
LOOK = {"utilization_percent": 50, "throttle_mask": 0x40 | 0x4, "power_w": 100.5, "temperature_c": None}


def lines(*rows):
    return [json.dumps(row) for row in rows]


def test_looks_become_moments_and_what_was_not_given_stays_absent():
    users = [{"pid": 7, "memory": 5, "sm": 30, "name": "python"}, {"pid": 8, "memory": None, "sm": None, "name": None}]
    found = parse(lines(HEAD, {"t": 0.1, "gpus": [{**LOOK, "users": users}]}, {"t": 0.2, "gpus": [LOOK]}))
    assert not isinstance(found, Absent)
    gpu = found[0]
    assert (gpu.name, gpu.pcie_width_max, len(gpu.moments)) == ("Test GPU", 16, 2)
    assert gpu.moments[0].throttle_reasons == ("software power cap", "hardware thermal slowdown")
    assert isinstance(gpu.moments[0].temperature_c, Absent)
    assert isinstance(gpu.power_limit_w, Absent)
    assert gpu.users[0].sm_percent == 30
    assert isinstance(gpu.users[1].sm_percent, Absent)


def test_a_torn_last_line_is_forgiven_and_an_error_is_a_reason():
    found = parse([*lines(HEAD, {"t": 0.1, "gpus": [LOOK]}), '{"t": 0.2, "gp'])
    assert not isinstance(found, Absent)
    assert len(found[0].moments) == 1
    assert parse(lines({"error": "NVML: driver not loaded"})) == Absent("NVML: driver not loaded")
    assert isinstance(parse([]), Absent)


def test_without_a_driver_the_reason_comes_back_from_the_child(tmp_path):
    recorder = GpuRecorder(tmp_path / "gpus.jsonl")
    # without a driver it says so and ends; with one it goes on
    wait_until(lambda: recorder._process.poll() is not None or (tmp_path / "gpus.jsonl").stat().st_size)
    found = recorder.finish()
    assert isinstance(found, Absent) or found


FAKE = """
typedef struct { unsigned gpu, memory; } util; typedef struct { unsigned long long total, free, used; } mem;
int nvmlInitWithFlags(unsigned f) { return 0; } int nvmlInit_v2(void) { return 0; } int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)1; return 0; }
int nvmlDeviceGetName(void *h, char *name, unsigned length) { name[0] = 'F'; name[1] = 0; return 0; }
int nvmlDeviceGetUtilizationRates(void *h, util *u) { u->gpu = 42; u->memory = 7; return 0; }
int nvmlDeviceGetMemoryInfo(void *h, mem *m) { m->total = 1000; m->free = 400; m->used = 600; return 0; }
int nvmlDeviceGetPowerUsage(void *h, unsigned *p) { *p = 123000; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *h, unsigned *p) { *p = 400000; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, unsigned long long *m) { *m = 0x20; return 0; }
"""


@pytest.fixture
def with_driver(tmp_path):
    """Runs Python code beside a driver library that answers; the first argument is where the child writes."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    source = tmp_path / "fake.c"
    source.write_text(FAKE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", source], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}

    def call(code):
        line = [sys.executable, "-c", LOOKS + textwrap.dedent(code), tmp_path / "gpus.jsonl"]
        return subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=120)

    return call


LOOKS = """
import os, pathlib, sys, time
from gpudoc.facts.live.nvml import GpuRecorder
place = pathlib.Path(sys.argv[1])
recorder = GpuRecorder(place)
while len(place.read_text().splitlines()) < 7:
    time.sleep(0.05)
"""


def test_the_child_looks_at_a_driver_library_again_and_again(with_driver):
    done = with_driver("""
        gpu, = recorder.finish()
        last = gpu.moments[-1]
        print(gpu.name, gpu.power_limit_w, len(gpu.moments), last.utilization_percent, last.power_w,
              last.memory_used_bytes, *last.throttle_reasons, sep="|")
    """)
    name, limit, count, *rest = done.stdout.strip().split("|")
    assert (name, limit, rest) == ("F", "400.0", ["42", "123.0", "600", "software thermal slowdown"])
    assert int(count) >= 5


def test_the_child_ends_when_its_parent_dies(with_driver):
    done = with_driver("""
        print(recorder._process.pid, flush=True)
        os.kill(os.getpid(), 9)
    """)
    child = int(done.stdout)
    wait_until(lambda: not _lives(child))


def _lives(pid):
    stat = read_stat(pid)
    return stat is not None and stat.state not in "ZX"
