"""The script that the examined Python runs, as a real process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpudoc.facts.examined_python as examined
from tests.fakes.machine import H100, FakeMachine

SCRIPT = Path(examined.__file__)
OTHER_PYTHONS = [found for minor in range(7, 16) if (found := shutil.which(f"python3.{minor}"))]


def run(python, *arguments, cwd=None, env=None):
    answer = subprocess.run(
        [str(python), str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        input="[]\n",
        cwd=cwd,
        env=env,
        check=True,
    )
    return [json.loads(line) for line in answer.stdout.splitlines()]


def facts(lines):
    return {".".join(line["fact"]): line["value"] for line in lines if "fact" in line}


def test_quick_imports_nothing_but_reads_the_build():
    told = facts(run(sys.executable, "--quick"))
    assert told["python.version"] == ".".join(map(str, sys.version_info[:3]))
    assert told["torch.version"]
    assert "torch.is_available" not in told


@pytest.mark.parametrize("python", OTHER_PYTHONS, ids=lambda p: Path(p).name)
def test_other_pythons_run_it_too(python):
    if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip("only a name for a Python that is not there")
    told = facts(run(python, "--quick"))
    assert told["python.version"]
    assert told["torch.version"]


def test_a_file_in_the_current_folder_answers_no_import(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "torch.py").write_text("raise SystemExit('shadowed')")
    assert facts(run(sys.executable, "--quick", cwd=tmp_path))["torch.version"]


@pytest.fixture
def machine(tmp_path):
    fake = FakeMachine(tmp_path / "m")
    fake.driver()
    fake.gpus(H100, 2)
    return fake


def test_packages_are_listed_with_pins_of_torch(machine):
    machine.torch()
    machine.package("torch", "2.13.0+cu130", "numpy", 'triton==3.6.0; platform_system == "Linux"', 'x==1; extra == "y"')
    machine.package("numpy", "2.1.0")
    packages = {p.name: p for p in machine.collect(quick=True).python.packages}
    assert packages["numpy"].version == "2.1.0"
    assert packages["torch"].requires == ('triton==3.6.0; platform_system == "Linux"',)


def test_a_warning_and_an_unavailable_device_are_told(machine):
    machine.torch(available=False, warning="CUDA initialization: CUDA unknown error")
    torch = machine.collect().torch
    assert torch.is_available is False
    assert torch.warning == "CUDA initialization: CUDA unknown error"
    assert torch.arch_list[0] == "sm_70"


def test_an_import_error_is_told_in_its_words(machine):
    machine.torch(import_error="libcudnn.so.9: cannot open shared object file")
    torch = machine.collect().torch
    assert torch.import_error == "ImportError: libcudnn.so.9: cannot open shared object file"
    assert torch.version == "2.13.0+cu130"


def test_kernels_are_tried_on_idle_devices_only(machine):
    machine.torch(kernel_error="CUDA error: no kernel image is available for execution on the device")
    machine.answer("nvmlDeviceGetComputeRunningProcesses", "4242:1000000", 1)
    checks = machine.collect().torch.kernel_checks
    assert [(c.device, c.ran, c.skipped) for c in checks] == [(0, False, ""), (1, False, "a process uses the GPU")]
    assert "no kernel image" in checks[0].error


def test_conda_packages_and_manager(tmp_path, monkeypatch):
    meta = tmp_path / "conda-meta"
    meta.mkdir()
    (meta / "pytorch-2.5.1-py3.11_cuda12.4_0.json").write_text("{}")
    (meta / "history").write_text("")
    monkeypatch.setattr(examined.sys, "prefix", str(tmp_path))
    monkeypatch.setattr(examined.sys, "path", [])
    assert examined._manager() == "conda"
    assert [(p["name"], p["version"], p["channel"]) for p in examined.packages()] == [("pytorch", "2.5.1", "conda")]


@pytest.mark.parametrize(("text", "manager"), [("home = /usr/bin\nuv = 0.5.1\n", "uv"), ("home = /usr/bin\n", "venv")])
def test_the_manager_stands_in_the_environments_config(tmp_path, monkeypatch, text, manager):
    (tmp_path / "pyvenv.cfg").write_text(text)
    monkeypatch.setattr(examined.sys, "prefix", str(tmp_path))
    assert examined._manager() == manager
