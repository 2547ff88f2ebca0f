"""A folder with files that are called like the modules gpudoc imports: what it starts there must not run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoc.process.arguments import AS_MODULE, own_module

ROOT = Path(__file__).resolve().parents[2]
PLANTED = "open(__file__ + '.was_run', 'w').close()\nraise SystemExit(97)\n"
NAMES = ("yaml.py", "types.py", "torch.py", "gpudoc.py", "datasets/__init__.py")


@pytest.fixture
def foreign(tmp_path):
    """Such a folder to stand in."""
    folder = tmp_path / "downloaded"
    for name in NAMES:
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(PLANTED)
    return folder


def run_in(folder: Path, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(
        command, cwd=folder, env={**known, **environment}, capture_output=True, text=True, timeout=300, check=False
    )


def is_clean(folder: Path) -> bool:
    return not list(folder.rglob("*.was_run"))


def test_the_planted_files_are_run_by_a_plain_module_call(foreign):
    run_in(foreign, [sys.executable, "-m", "gpudoc", "--version"])
    assert not is_clean(foreign)


def test_a_module_of_ours_does_not_look_there(foreign):
    done = run_in(foreign, [*own_module("gpudoc"), "--version"])
    assert (done.returncode, is_clean(foreign)) == (0, True), done.stderr


def test_nor_where_gpudoc_is_found_by_the_child_itself(foreign, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command = own_module("gpudoc")
    assert ("-P" in command) == (sys.version_info >= (3, 11))
    done = run_in(foreign, [*command, "--version"])
    assert (done.returncode, is_clean(foreign)) == (0, True), done.stderr


@pytest.mark.skipif("-P" not in AS_MODULE, reason="Python 3.10 has no -P")
def test_nor_does_the_line_of_a_job_file(foreign):
    done = run_in(foreign, [sys.executable, *AS_MODULE, "gpudoc", "--version"])
    assert (done.returncode, is_clean(foreign)) == (0, True), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("more", [("--gpus", "2"), ("--set", "allocator=exact")], ids=["ranks", "restart"])
def test_a_training_runs_there_as_anywhere(foreign, tmp_path, more):
    entry = "import sys; sys.path[:] = [entry for entry in sys.path if entry]; from gpudoc.cli.app import main; main()"
    arguments = ["train", "--model", "quickstart", "--device", "cpu", "--steps", "2", "--no-preflight", "--plain"]
    done = run_in(foreign, [sys.executable, "-c", entry, *arguments, "--run-dir", str(tmp_path / "run"), *more])
    assert (done.returncode, is_clean(foreign)) == (0, True), done.stderr
    assert (tmp_path / "run" / "summary.json").exists()
    if "allocator=exact" in more:
        assert "starting again" in done.stderr + done.stdout
