"""Where gpudoc is called matters as little as can be: terminals, pipes, locales, folders and disks of every kind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.terminal import gpudoc

DOCTOR = ("doctor", "--quick")


def piped(*arguments, stdout=subprocess.PIPE, **environment):
    env = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-m", "gpudoc", *arguments],
        stdout=stdout, stderr=subprocess.PIPE, text=True, check=False,
        env={name: value for name, value in env.items() if value is not None},
    )  # fmt: skip


def test_the_bare_command_is_its_help_and_no_line_of_it_is_cut():
    screen = gpudoc()
    assert screen.code == 0
    assert screen.lines[0].startswith("Usage: gpudoc")
    for command in ("doctor", "bench", "tune", "train"):
        assert any(line.startswith(f"  {command} ") and line.endswith(".") for line in screen.lines)
    assert "..." not in screen.text.split("Commands:")[1]


def test_tune_without_a_model_offers_the_built_in_one():
    screen = gpudoc("tune")
    assert screen.code == 2
    assert "try: gpudoc tune --model quickstart" in " ".join(screen.text.split())
    assert "nothing to tune" in screen.lines[0]


def test_wrong_usage_names_the_help_of_its_command():
    screen = gpudoc("bench", "--quik")
    assert screen.code == 2
    assert screen.lines[-1] == "  try: gpudoc bench --help"


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_this_machine_on_a_terminal(columns):
    screen = gpudoc(*DOCTOR, columns=columns)
    assert screen.coloured
    assert "examining the driver" in screen.raw
    assert "examining the driver" not in screen.text
    assert all(len(line) <= columns for line in screen.raw.replace("\r", "").splitlines() if "\x1b" not in line)
    assert any(" memory " in line for line in screen.lines)


def test_a_dumb_terminal_gets_no_control_characters():
    assert "\x1b" not in gpudoc(*DOCTOR, env={"TERM": "dumb"}).raw


def test_a_variable_of_the_environment_asks_for_the_plain_mode():
    screen = gpudoc(*DOCTOR, env={"GPUDOC_PLAIN": "1"})
    assert "\x1b" not in screen.raw
    assert "  passed: data " in screen.text
    assert "✓" not in screen.text


def test_a_locale_without_utf8_gets_ascii():
    screen = gpudoc(*DOCTOR, env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert screen.code == 0
    assert all(ord(letter) < 128 for letter in screen.raw)
    assert "+ data" in screen.text


def unread(*arguments):
    read, write = os.pipe()
    os.close(read)
    try:
        return piped(*arguments, stdout=write)
    finally:
        os.close(write)


@pytest.mark.parametrize("arguments", [DOCTOR, (*DOCTOR, "--json"), ("doctor", "--list"), ("--help",)])
def test_a_reader_that_goes_away_is_no_failure(arguments):
    done = unread(*arguments)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"], ["--verbose"]])
def test_a_reader_that_goes_away_hides_no_bad_answer(tmp_path, form):
    (tmp_path / "train.log").write_text("RuntimeError: CUDA error: no kernel image is available for execution\n")
    done = unread("doctor", str(tmp_path / "train.log"), *form)
    assert done.returncode == 1
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [DOCTOR, (*DOCTOR, "--json"), ("--version",)])
def test_a_full_disk_is_said_in_two_lines(arguments):
    with Path("/dev/full").open("w") as full:
        done = piped(*arguments, stdout=full)
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_a_fault_is_told_where_not_even_its_report_can_be_written(monkeypatch, capsys):
    from gpudoc.cli import app

    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    monkeypatch.setattr(app, "application", lambda _: lambda **_: 1 / 0)
    assert app.run(["doctor"]) == 70
    said = capsys.readouterr().err
    assert "open an issue with these lines:" in said
    assert "ZeroDivisionError: division by zero" in said


def test_no_home_and_no_variables_at_all():
    done = piped(*DOCTOR, HOME=None, XDG_DATA_HOME=None, XDG_CACHE_HOME=None, USER=None)
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_place_that_cannot_be_written_is_said_before_the_search(tmp_path, monkeypatch, capsys):
    from gpudoc.cli import app

    monkeypatch.setenv("XDG_DATA_HOME", "/proc/nowhere")
    assert app.run(["tune", "--model", "quickstart"]) == 2
    said = capsys.readouterr().err
    assert "/proc/nowhere/gpudoc/profiles: the profile cannot be written there" in said
    assert "try: choose another place: --out FILE" in said
    typo = tmp_path / "nope" / "dir" / "p.yaml"
    assert app.run(["tune", "--model", "quickstart", "--out", str(typo)]) == 2
    assert f"there is no folder {typo.parent}" in capsys.readouterr().err
    assert not typo.parent.exists()


@pytest.mark.parametrize(("arguments", "code"), [(["doctor"], 141), (["doctor", "--help"], 0), (["--version"], 0)])
def test_a_command_whose_reader_went_before_it_had_an_answer_is_no_success(monkeypatch, arguments, code):
    from gpudoc.cli import app

    def lose(**_):
        raise BrokenPipeError

    monkeypatch.setattr(app, "application", lambda _: lose)
    assert app.run(arguments) == code
