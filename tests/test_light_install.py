"""What `pip install .` alone brings is enough for doctor; what needs torch names the command that installs it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def closure(name: str, found: dict[str, importlib.metadata.Distribution]) -> dict[str, importlib.metadata.Distribution]:
    """The installed distributions that this one needs, without its extras."""
    for row in importlib.metadata.requires(name) or []:
        needed = re.split(r"[\s;<>=!~\[(]", row)[0].lower().replace("_", "-")
        if "extra ==" in row or needed in found:
            continue
        try:
            found[needed] = importlib.metadata.distribution(needed)
        except importlib.metadata.PackageNotFoundError:
            # for another platform or Python
            continue
        closure(needed, found)
    return found


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """A Python that sees gpudoc and what it needs without extras, and nothing else."""
    folder = tmp_path_factory.mktemp("light")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env" / "bin" / "python"
    show = [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
    site = Path(subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip())
    (site / "here.pth").write_text(f"{ROOT}\n")
    for needed in closure("gpudoc", {}).values():
        base = Path(str(needed.locate_file("")))
        for top in {Path(file).parts[0] for file in needed.files or () if ".." not in Path(file).parts}:
            target = site / top
            if not target.exists() and top != "__pycache__":
                target.symlink_to(base / top)
    return python


def call(python, *arguments, cwd):
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX")}
    command = [python, "-m", "gpudoc", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=kept)


def test_no_training_package_is_among_what_doctor_needs():
    assert not {"torch", "numpy", "pillow", "safetensors", "matplotlib"} & closure("gpudoc", {}).keys()


def test_doctor_reads_a_log_and_the_machine_without_torch(light, tmp_path):
    (tmp_path / "log").write_text("RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    read = call(light, "doctor", "log", "--json", cwd=tmp_path)
    assert read.returncode == 1, read.stderr
    assert json.loads(read.stdout)["findings"][0]["id"] == "gpu_ecc_error"
    assert call(light, "doctor", "--explain", "gpu_ecc_error", cwd=tmp_path).returncode == 0
    looked = call(light, "doctor", "--json", cwd=tmp_path)
    assert looked.returncode in (0, 1), looked.stderr
    assert json.loads(looked.stdout)["source"] == "machine"


@pytest.mark.parametrize("command", [("bench",), ("tune", "--model", "quickstart"), ("train", "--model", "quickstart")])
def test_what_needs_torch_names_the_command_that_installs_it(light, tmp_path, command):
    refused = call(light, *command, cwd=tmp_path)
    assert refused.returncode == 2
    assert f"gpudoc {command[0]} needs torch, numpy, safetensors" in refused.stderr
    assert "install torch" in refused.stderr
    assert "install numpy safetensors" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_wheel_is_the_one_that_the_driver_runs():
    from gpudoc.doctor.model import Setting
    from gpudoc.doctor.remedies import advise

    (step,) = advise("torch_wheel")(Setting(driver_cuda=(12, 4), capability=(9, 0)))
    assert "https://download.pytorch.org/whl/cu1" in step.run
    (plain,) = advise("torch_wheel")(Setting())
    assert plain.run == "pip install torch"
