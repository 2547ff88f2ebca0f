"""The workflows of GitHub: nothing is published by accident, and what they call is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / ".github/workflows").glob("*.yml")}
STEPS = [
    (name, job, step)
    for name, workflow in WORKFLOWS.items()
    for job, told in workflow["jobs"].items()
    for step in told["steps"]
]


def test_there_are_the_three():
    assert set(WORKFLOWS) == {"checks", "docs", "release"}


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_each_begins_with_the_right_to_read_alone(name):
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_each_action_is_named_by_its_commit_which_nobody_can_move(path):
    actions = re.findall(r"uses: (.*)", path.read_text("utf-8"))
    assert actions
    assert [action for action in actions if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}  # v[\d.]+", action)] == []


def test_what_is_called_is_there():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    runs = [step["run"] for _, _, step in STEPS if "run" in step]
    assert {target for run in runs for target in re.findall(r"^make (\S+)", run)} <= set(targets)
    files = {file for run in runs for file in re.findall(r"\b(tools/[\w/]+\.\w+)", run)}
    assert {"tools/smoke.py", "tools/elsewhere.ini", "tools/zipapp.py"} <= files
    assert all((ROOT / file).is_file() for file in files)


def test_no_step_puts_what_strangers_write_into_a_shell():
    for name, job, step in STEPS:
        assert "${{" not in step.get("run", ""), (name, job, step)


def test_only_a_tag_publishes_and_only_under_a_name_that_is_ours():
    release = WORKFLOWS["release"]
    # YAML reads the key `on` as true
    assert release[True] == {"push": {"tags": ["v*"]}}
    publish = release["jobs"]["publish"]
    assert publish["if"] == "vars.PYPI_NAME != ''"
    assert publish["environment"] == "pypi"
    assert publish["permissions"] == {"id-token": "write"}
    publishing = [(name, job) for name, job, step in STEPS if "pypi-publish" in step.get("uses", "")]
    assert publishing == [("release", "publish")]
    assert not any("password" in step.get("with", {}) or "secrets." in str(step) for _, _, step in STEPS)


def test_doctor_runs_on_windows_and_macos():
    job = WORKFLOWS["checks"]["jobs"]["elsewhere"]
    assert {"windows-latest", "macos-latest"} <= set(job["strategy"]["matrix"]["system"])


@pytest.mark.slow
def test_what_runs_there_runs_here_and_fails_when_something_does_not():
    done = subprocess.run([sys.executable, "tools/smoke.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("ok ") == 6
    code = "import sys, tools.smoke; sys.exit(tools.smoke.main((sys.executable, '-c', 'raise SystemExit(3)')))"
    broken = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert broken.returncode == 1
    assert broken.stdout.count("FAILED") == 6
