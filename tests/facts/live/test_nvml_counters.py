"""NVML's performance counters, read from a driver library that answers as a scenario says."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from gpudoc.facts.live.nvml import parse
from gpudoc.facts.model import Absent
from tests.fakes.build import build

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")

SUPPORTED = ("nvmlDeviceGetCount * value 1", "nvmlGpmQueryDeviceSupport * value 1")
HALF_USED = ("gpm.2 * value 62.5", "gpm.5 * value 4.25", "gpm.10 * value 30", "gpm.12 * value 55")
MIG = (*SUPPORTED, "nvmlDeviceGetMigMode * value 1 1")
USERS = "nvmlDeviceGetComputeRunningProcesses * value"
INSTANCES = "MIG instances of this GPU are in use, but counters can be read for only one"
READ = {"sm_active_percent": 62.5, "tensor_active_percent": 4.25, "dram_active_percent": 30, "fp32_active_percent": 55}
ONCE = """
import json, pynvml
from gpudoc.facts.live.nvml_counters import Counters
pynvml.nvmlInit()
counters = Counters(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0))
first, second = counters.read(), counters.read()
print(json.dumps([counters.absent, first, second]))
"""
WATCH = """
import pathlib, sys, time
from gpudoc.facts.live.nvml import GpuRecorder
place = pathlib.Path(sys.argv[1])
recorder = GpuRecorder(place)
while "tensor_active_percent" not in place.read_text():
    time.sleep(0.02)
recorder.finish()
"""


def run(tmp_path, rules, code, *arguments):
    scenario = tmp_path / "scenario"
    scenario.write_text("".join(f"{rule}\n" for rule in rules))
    environment = {
        **os.environ, "FAKE_SCENARIO": str(scenario), "LD_LIBRARY_PATH": str(build() / "nvml"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    line = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("rules", "reason", "found"),
    [
        ((*SUPPORTED, *HALF_USED), "", READ),
        # what makes no sense is no figure, and a little above all is all
        (
            (*SUPPORTED, "gpm.2 * value 100.4", "gpm.5 * value nan", "gpm.10 * value -1", "gpm.12 * value 4e9"),
            "",
            {"sm_active_percent": 100.0},
        ),
        ((*SUPPORTED, "gpm.2 * value 80", "gpm.5 * error 3"), "", {"sm_active_percent": 80.0}),
        (SUPPORTED, "", {}),
        # an Ampere GPU, an older driver, a driver that lets only root count, a GPU that is lost meanwhile
        (("nvmlGpmQueryDeviceSupport * value 0",), "this GPU has no such counters; Hopper and newer have them", {}),
        (("nvmlGpmQueryDeviceSupport * error 13",), "this driver is too old for this query", {}),
        (("nvmlGpmQueryDeviceSupport * error 3",), "not supported by this GPU or driver", {}),
        ((*SUPPORTED, *HALF_USED, "nvmlGpmSampleGet * error 4"), "no permission", {}),
        ((*SUPPORTED, *HALF_USED, "nvmlGpmMetricsGet * error 15"), "the GPU is lost", {}),
        # one instance, several, none
        ((*MIG, f"{USERS} 7:100:3 8:100:3", "gpm.5.mig3 * value 9"), "", {"tensor_active_percent": 9}),
        ((*MIG, f"{USERS} 7:100:3 8:100:4"), f"2 {INSTANCES}", {}),
        ((*MIG, *HALF_USED), f"0 {INSTANCES}", {}),
        ((*MIG, f"{USERS} 7:100:3", "nvmlGpmMigSampleGet * error 4"), "no permission", {}),
    ],
)  # fmt: skip
def test_what_the_driver_counts_is_read_and_what_it_does_not_has_a_reason(tmp_path, rules, reason, found):
    said, first, second = json.loads(run(tmp_path, rules, ONCE))
    assert said == reason
    assert first == second == found


def test_a_watch_has_them_once_a_second_between_its_looks(tmp_path):
    place = tmp_path / "gpus.jsonl"
    run(tmp_path, (*SUPPORTED, *HALF_USED), WATCH, str(place))
    (gpu,) = parse(place.read_text().splitlines())
    told = [moment for moment in gpu.moments if not isinstance(moment.tensor_active_percent, Absent)]
    assert gpu.counters_absent == ""
    assert len(told) < len(gpu.moments)
    assert (told[0].sm_active_percent, told[0].tensor_active_percent) == (62.5, 4.25)


def test_without_them_the_track_says_why_and_the_rest_is_as_ever(tmp_path):
    head = {"gpus": [{"name": "A100", "counters_absent": "this GPU has no such counters"}]}
    found = parse([json.dumps(head), json.dumps({"t": 0.1, "gpus": [{"utilization_percent": 50}]})])
    assert found[0].counters_absent == "this GPU has no such counters"
    assert isinstance(found[0].moments[0].tensor_active_percent, Absent)
    assert found[0].moments[0].utilization_percent == 50
