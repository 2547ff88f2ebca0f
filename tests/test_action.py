"""action.yml's script as a program: the summary, the annotations at the lines of the code, and the SARIF."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
CRASH = """\
Traceback (most recent call last):
  File "/builds/proj/train, it.py", line 12, in forward
    return self.b(h)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x20 and 30x2)
"""


@pytest.fixture
def act(tmp_path):
    def run(text, **inputs):
        (tmp_path / "test.log").write_text(text)
        (tmp_path / "train, it.py").write_text("")
        given = {"GPUDOC_LOG": "test.log", "GPUDOC_SARIF": "out.sarif", **inputs}
        files = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "GITHUB_OUTPUT": str(tmp_path / "output")}
        return subprocess.run(
            [sys.executable, ROOT / "tools" / "action.py"], cwd=tmp_path, env={**os.environ, **given, **files},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


def test_a_failed_run_gets_a_summary_an_annotation_and_sarif(act, tmp_path):
    done = act(CRASH)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    # a comma in a property and a line end in the message are encoded
    assert line.startswith("::error title=gpudoc%3A shape_mismatch,file=train%2C it.py,line=12::")
    assert "%0Afix%3A" not in line
    assert "%0Afix: " in line
    assert "**gpudoc doctor: broken**" in (tmp_path / "summary").read_text()
    assert (tmp_path / "output").read_text() == "cause=shape_mismatch\nsarif=out.sarif\n"
    assert json.loads((tmp_path / "out.sarif").read_text())["version"] == "2.1.0"


def test_the_step_fails_where_it_is_asked_to(act):
    assert act(CRASH, GPUDOC_FAIL="true").returncode == 1


def test_a_log_that_is_not_there_fails_and_annotates(act):
    for given in ("absent.log", " "):
        done = act(CRASH, GPUDOC_LOG=given)
        assert done.returncode == 2
        assert done.stdout.startswith("::error title=gpudoc::")


def test_the_action_hands_its_inputs_over_by_the_environment():
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    *_, last = action["runs"]["steps"]
    assert set(last["env"]) == set(re.findall(r'"(GPUDOC_\w+)"', (ROOT / "tools" / "action.py").read_text()))
    assert not any("${{" in step["run"] for step in action["runs"]["steps"])
    assert {value["value"] for value in action["outputs"].values()} == {
        "${{ steps.doctor.outputs.cause }}", "${{ steps.doctor.outputs.sarif }}"
    }  # fmt: skip
