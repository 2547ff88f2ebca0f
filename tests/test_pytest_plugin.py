"""`pytest --gpudoc`: the cause of a test that dies of CUDA stands in its report, and nothing else changes."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from tests.test_own_files import ROOT

TESTS = """\
import sys
import pytest

def test_cuda():
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")

def test_beside():
    print("NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.", file=sys.stderr)
    raise RuntimeError("worker died")

def test_own_mistake():
    assert 1 + 1 == 3

def test_skipped():
    pytest.skip("no GPU")

def test_passes():
    pass
"""


def outcome_of(folder, *options):
    (folder / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "gpudoc.pytest_plugin", "-p", "no:cacheprovider", *options]
    # an installed gpudoc would bring the plugin a second time, under another name
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True, check=False)


def test_a_failure_of_the_machine_has_its_cause_in_the_report(tmp_path):
    done = outcome_of(tmp_path, "--gpudoc")
    assert "3 failed, 1 passed, 1 skipped" in done.stdout
    assert done.stdout.count("- gpudoc -") == 2
    assert "[gpu_ecc_error, " in done.stdout
    assert "[gpu_fallen_off_bus, " in done.stdout


def test_it_is_off_unless_asked_for(tmp_path):
    done = outcome_of(tmp_path)
    assert "3 failed, 1 passed, 1 skipped" in done.stdout
    assert "gpudoc -" not in done.stdout


def test_pytest_finds_it_where_gpudoc_is_installed():
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ((name, value),) = project["entry-points"]["pytest11"].items()
    assert hasattr(EntryPoint(name, value, "pytest11").load(), "pytest_runtest_makereport")
