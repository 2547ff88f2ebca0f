"""Doctor on Windows and macOS, as far as Linux can show it: a Python that takes itself for one of theirs.

Nothing here has run on those systems; `.github/workflows/checks.yml` runs the same commands on their runners.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from tests.fakes.build import build
from tests.fakes.elsewhere import python_of
from tests.fakes.machine import RTX4090, FakeMachine

OLD_DRIVER = "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).\n"
SYSTEMS = ("win32", "darwin")
# what only Linux can be asked for
OF_LINUX = {"nouveau_loaded", "device_nodes_missing", "driver_library_mismatch", "container_without_gpu_access"}


def call(system, folder, *arguments, environment=None, text=None, linuxes=()):
    """What gpudoc says in a Python of that system."""
    program = python_of(system, folder, linuxes)
    left_out = ("VIRTUAL_ENV", "CONDA_PREFIX", "USER", "LOGNAME", "LNAME", "USERNAME")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    command = [program, "-m", "gpudoc", *arguments]
    return subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        env={**kept, **(environment or {})},
        cwd=folder,
        check=False,
    )


def examined(system, folder, *arguments, **named):
    done = call(system, folder, "doctor", "--json", *arguments, **named)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def wrong(report):
    """What is found, less what is true of the machine that runs the test."""
    return {finding["id"] for finding in report["findings"]} - {"disk_full", "host_memory_low"}


def windows_machine(tmp_path):
    """An RTX 4090 whose driver is in Windows' places: nvml.dll in System32, nvcuda.dll on the path."""
    machine = FakeMachine(tmp_path)
    machine.driver("560.94", (12, 6))
    machine.gpus(RTX4090)
    return machine


def on_windows(machine, tmp_path, *arguments, **named):
    variables, python = machine.prepare()
    system = tmp_path / "Windows" / "System32"
    system.mkdir(parents=True)
    shutil.copy(build() / "nvml" / "libnvidia-ml.so.1", system / "nvml.dll")
    shutil.copy(build() / "cuda" / "libcuda.so.1", system / "nvcuda.dll")
    places = {"WINDIR": str(system.parent), "LD_LIBRARY_PATH": str(system)}
    asked = ("--python", str(python), *arguments)
    return examined("win32", tmp_path, *asked, environment={**variables, **places}, **named)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_log_is_read(system, tmp_path):
    (tmp_path / "train.log").write_text(OLD_DRIVER)
    done = call(system, tmp_path, "doctor", "train.log")
    assert done.returncode == 1, done.stderr
    assert "driver_too_old" in done.stdout
    assert not done.stderr


@pytest.mark.slow
def test_a_log_of_many_megabytes_is_read_whole_on_windows(tmp_path):
    with (tmp_path / "train.log").open("w") as log:
        log.write("step 1 loss 2.0 and more words of a log that is long\n" * 400_000)
        log.write("RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    assert examined("win32", tmp_path, "train.log")["findings"][0]["id"] == "gpu_ecc_error"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("doctor", "--explain", "driver_too_old"), "means:"),
        (("demo", "wheel"), "gpu_newer_than_wheel_archs"),
        (("check", "cfg.yaml"), "cfg.yaml"),
        (("--help",), "gpudoc doctor"),
    ],
)
def test_what_needs_no_machine_works_on_windows(arguments, said, tmp_path):
    (tmp_path / "cfg.yaml").write_text("model: {target: 'torch.nn:Linear', args: {in_features: 2, out_features: 2}}\n")
    done = call("win32", tmp_path, *arguments)
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode != 70


@pytest.fixture(scope="module")
def report_of_windows(tmp_path_factory):
    """What is said of a Windows with an RTX 4090, a torch for it, and Ubuntu in WSL."""
    folder = tmp_path_factory.mktemp("windows")
    machine = windows_machine(folder)
    machine.torch("2.11.0+cu126", "12.6")
    return on_windows(machine, folder, linuxes=("Ubuntu-24.04",))


def test_windows_driver_gpu_and_torch_are_examined(report_of_windows):
    assert not wrong(report_of_windows)
    facts = report_of_windows["facts"]
    assert facts["host"]["system"] == "Windows"
    assert facts["host"]["wsl_distributions"] == ["Ubuntu-24.04"]
    assert isinstance(facts["host"]["memory_total_bytes"], int)
    assert facts["driver"]["nvml_driver_version"] == "560.94"
    assert facts["gpus"][0]["name"] == RTX4090.name
    assert facts["torch"]["version"] == "2.11.0+cu126"
    assert facts["torch"]["kernel_checks"][0]["ran"] is True


def test_what_windows_cannot_be_asked_is_neither_well_nor_wrong(report_of_windows):
    assert report_of_windows["facts"]["kernel_log"] == {"absent": "not asked on Windows"}
    because = {row["id"]: row["because"] for row in report_of_windows["skipped"]}
    assert because.keys() >= OF_LINUX
    assert all("not asked on Windows" in because[cause] for cause in OF_LINUX)
    assert not OF_LINUX & set(report_of_windows["passed"])
    # what NVML and the files of torch told is checked there as on Linux
    told = {"cpu_only_torch", "compute_mode_exclusive", "cuda_init_failed", "torch_not_installed"}
    assert told <= set(report_of_windows["passed"])


def test_a_torch_without_cuda_next_to_a_gpu_is_found_on_windows(tmp_path):
    machine = windows_machine(tmp_path)
    machine.torch("2.11.0+cpu", None)
    found = {finding["id"]: finding for finding in on_windows(machine, tmp_path)["findings"]}
    finding = found["cpu_only_torch"]
    assert any("download.pytorch.org/whl/cu1" in step.get("run", "") for step in finding["fix"])


@pytest.mark.parametrize("system", SYSTEMS)
def test_without_any_gpu_nothing_is_found_and_the_driver_is_not_called_well(system, tmp_path):
    report = examined(system, tmp_path, "--quick")
    assert not wrong(report)
    assert not {"driver_missing_or_not_loaded", "no_gpu_on_machine", "gpu_fallen_off_bus"} & set(report["passed"])


def test_macos_asks_nothing_of_nvidia_and_tells_of_mps(tmp_path):
    lines = "".join(
        json.dumps({"fact": path.split("."), "value": value}) + "\n"
        for path, value in {
            "python.version": "3.12.7",
            "python.packages": [],
            "torch.version": "2.11.0",
            "torch.accelerator": "cpu",
            "torch.mps_built": True,
            "torch.mps_available": True,
            "torch.is_available": False,
        }.items()
    )
    (tmp_path / "lines").write_text(lines)
    python = tmp_path / "python"
    # as a torch does that waits to hear which GPUs it may try
    python.write_text(
        f"#!/bin/sh\ncat {tmp_path}/lines\nread devices\n[ \"$devices\" = '[]' ] && echo '{{\"end\": true}}'\n"
    )
    python.chmod(0o755)
    report = examined("darwin", tmp_path, "--python", str(python))
    assert report["facts"]["gpus"] == {"absent": "not asked on macOS"}
    assert report["facts"]["torch"]["mps_available"] is True
    assert "cpu_only_torch" not in {finding["id"] for finding in report["findings"]}
    assert "probe_failures" not in report["facts"]


@pytest.mark.slow
def test_a_job_is_not_watched_there_and_that_is_said(tmp_path):
    done = call("win32", tmp_path, "doctor", "--pid", "4711")
    assert done.returncode == 2
    assert "watching a job needs the /proc of Linux" in done.stderr
    started = call("win32", tmp_path, "doctor", "--", "python", "train.py")
    assert started.returncode == 2
    assert "watching a job needs the /proc of Linux" in started.stderr


@pytest.mark.slow
def test_the_linux_next_to_windows_is_named_as_the_place_for_the_rest(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho '{\"end\": true}'\n")
    python.chmod(0o755)
    asked = ("doctor", "--quick", "--python", str(python))
    done = call("win32", tmp_path, *asked, linuxes=("Ubuntu-24.04", "Debian"))
    assert "inside WSL (Ubuntu-24.04, Debian): gpudoc doctor" in " ".join(done.stdout.split())
    assert "not asked on Windows" in done.stdout
    assert "wsl --install" in " ".join(call("win32", tmp_path, *asked).stdout.split())


@pytest.mark.slow
def test_bench_is_refused_on_windows_with_the_way_out(tmp_path):
    done = call("win32", tmp_path, "bench", "--quick")
    assert done.returncode == 2
    assert "this is Windows" in done.stderr
    assert "WSL 2" in done.stderr
