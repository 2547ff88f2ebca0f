"""No network, a proxy that answers nothing, a home that cannot be written, a torch whose import kills the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.namespaces import unshared

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"


def call(*arguments, before=(), cwd=None, **environment):
    env = {**os.environ, **environment}
    command = [*before, sys.executable, "-m", "gpudoc", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, check=False, timeout=200)


def test_without_a_network_and_with_a_dead_proxy_all_is_the_same(tmp_path):
    (tmp_path / "log").write_text(ECC)
    proxy = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy"), "http://127.0.0.1:9")
    cut_off = unshared("-rn")
    log = call("doctor", "log", "--json", before=cut_off, cwd=tmp_path, **proxy)
    assert json.loads(log.stdout)["findings"][0]["id"] == "gpu_ecc_error"
    machine = call("doctor", "--quick", "--json", before=cut_off, cwd=tmp_path, **proxy)
    assert machine.returncode in (0, 1), machine.stderr
    assert json.loads(machine.stdout)["crashed"] == []
    assert not log.stderr
    assert not machine.stderr


def test_a_home_that_cannot_be_written_is_no_matter_to_doctor(tmp_path):
    (tmp_path / "log").write_text(ECC)
    # not even root makes a folder there
    places = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), "/proc/self/fdinfo")
    machine = call("doctor", "--quick", cwd=tmp_path, **places)
    assert machine.returncode in (0, 1), machine.stderr
    assert not machine.stderr
    assert "gpu_ecc_error" in call("doctor", "log", cwd=tmp_path, **places).stdout


@pytest.fixture
def dying_torch(tmp_path):
    """PYTHONPATH with a torch whose import ends the process."""
    place = tmp_path / "site" / "torch"
    place.mkdir(parents=True)
    (place / "version.py").write_text('__version__ = "2.13.0+cu130"\ncuda = "13.0"\nhip = None\n')
    (place / "__init__.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    return {"PYTHONPATH": str(place.parent)}


def test_doctor_finds_a_torch_whose_import_kills_the_process(dying_torch, tmp_path):
    done = call("doctor", "--json", "--python", sys.executable, cwd=tmp_path, **dying_torch)
    assert done.returncode == 1, done.stderr
    assert "torch_import_crashes" in [finding["id"] for finding in json.loads(done.stdout)["findings"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "--model", "quickstart", "--steps", "2", "--profile", "off"), "Fatal Python error"),
        (("bench", "--quick", "--device", "cpu"), "torch cannot be imported by"),
        (("tune", "--model", "quickstart", "--device", "cpu", "--budget", "30s"), "torch cannot be imported by"),
    ],
)
def test_what_needs_such_a_torch_says_so_and_ends(dying_torch, tmp_path, arguments, said):
    done = call(*arguments, cwd=tmp_path, **dying_torch)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr
    if arguments[0] != "train":
        assert done.returncode == 2
        assert "ended by SIGSEGV\n  try: gpudoc doctor names the cause and the fix" in done.stderr
        assert done.stdout == ""


@pytest.mark.parametrize("command", ["bench", "tune", "train"])
def test_a_torch_whose_import_raises_is_said_with_its_error_and_the_command_that_names_the_cause(tmp_path, command):
    (tmp_path / "broken" / "torch").mkdir(parents=True)
    (tmp_path / "broken" / "torch" / "__init__.py").write_text("raise OSError('libcudart.so.12: cannot open')\n")
    device = () if command == "train" else ("--device", "cpu")
    model = () if command == "bench" else ("--model", "quickstart")
    done = call(command, *device, *model, cwd=tmp_path, PYTHONPATH=str(tmp_path / "broken"))
    assert (done.returncode, done.stdout) == (2, "")
    wanted = (
        f"torch cannot be imported by {sys.executable}: OSError: libcudart.so.12: cannot open\n  try: gpudoc doctor"
    )
    assert wanted in done.stderr
