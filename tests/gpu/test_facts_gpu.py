"""On a real GPU: the facts agree with nvidia-smi, the tiny kernel runs, and a machine that is well is called so."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from gpudoc import facts
from gpudoc.doctor.examine import Request, examine_machine
from gpudoc.facts.model import Absent

pytestmark = pytest.mark.gpu


def smi(query: str) -> list[list[str]]:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("nvidia-smi is not installed here")
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [[cell.strip() for cell in line.split(",")] for line in output.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def machine():
    return facts.collect()


def test_every_gpu_is_described_as_nvidia_smi_does(machine):
    rows = smi("name,uuid,memory.total,pcie.link.width.max,compute_mode,driver_version,power.default_limit")
    assert len(machine.gpus) == len(rows)
    for gpu, (name, uuid, memory_mib, width, mode, driver, power) in zip(machine.gpus, rows, strict=True):
        assert gpu.name == name
        assert gpu.uuid == uuid
        assert abs(gpu.memory_total_bytes / 2**20 - float(memory_mib)) <= 1
        assert gpu.compute_mode == mode.lower()
        assert machine.driver.nvml_driver_version == driver
        if width.isdigit():
            assert gpu.link.width_max == int(width)
        if power.replace(".", "").isdigit():
            assert gpu.power_limit_default_w == pytest.approx(float(power), abs=0.01)


def test_the_chain_is_whole(machine):
    assert machine.probe_failures == {}
    assert machine.driver.nvml_code == 0
    assert machine.driver.cu_init_code == 0
    assert machine.torch.is_available is True
    assert len(machine.driver.cuda_devices) == machine.torch.device_count
    # each was asked everything, and none is lost, needs a reset or is silent
    assert [gpu.nvml_code for gpu in machine.gpus] == [0] * len(machine.gpus)


def test_the_multiprocessors_are_those_that_torch_counts(machine):
    torch = pytest.importorskip("torch")
    for device in machine.driver.cuda_devices:
        known = torch.cuda.get_device_properties(device.ordinal)
        assert device.sm_count == known.multi_processor_count
        assert device.capability == (known.major, known.minor)


def test_a_tiny_kernel_runs_on_every_idle_gpu_or_says_why_not():
    # this process must not hold a context, or its own GPU would be in use
    code = (
        "import json; from gpudoc import facts; m = facts.collect(); "
        "print(json.dumps([(c.device, c.ran, c.error, c.skipped) for c in m.torch.kernel_checks]))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    checks = json.loads(answer.stdout)
    assert checks
    assert all(ran or skipped for _, ran, _, skipped in checks), checks


def test_libraries_that_were_loaded_are_listed(machine):
    if isinstance(machine.torch.kernel_checks, Absent) or not any(c.ran for c in machine.torch.kernel_checks):
        pytest.skip("no kernel ran, so nothing was loaded")
    names = " ".join(machine.torch.loaded_libraries)
    assert "libcublas" in names
    assert "libcuda.so" in names


def test_nothing_is_broken_on_a_machine_whose_torch_computes(machine):
    report = examine_machine(machine, Request())
    assert [finding.id for finding in report.findings if finding.severity == "broken"] == []
    assert not report.crashed
