import subprocess
import sys

import pytest

from gpudoc.cli import app
from gpudoc.cli.usage import meant_command, misplaced_options, way_on

COMMANDS = ("doctor", "bench", "tune", "train", "demo", "check", "mcp", "clean")
TAKES_VALUE = {"--budget": True, "--only": True, "--json": False, "--epochs": True}
OPTIONS = {"tune": TAKES_VALUE}.get
PARSES = 'import argparse\np = argparse.ArgumentParser()\np.add_argument("--epochs")\np.parse_args()\n'


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("doctr", "gpudoc doctor"),
        ("benhc", "gpudoc bench"),
        ("Tune", "gpudoc tune"),
        ("explain", "gpudoc doctor --explain ID"),
        ("init", "gpudoc tune -- python train.py (no config is needed)"),
        ("run", "gpudoc train -- python train.py"),
        ("plan", 'gpudoc tune --model cfg.yaml --target "RTX 3090"'),
        ("nonsense", "gpudoc --help"),
    ],
)
def test_a_command_that_does_not_exist_leads_to_the_one_that_was_meant(typed, meant, capsys):
    assert meant_command(typed, COMMANDS) == meant
    assert app.run([typed]) == 2
    assert capsys.readouterr().err == f"gpudoc: No such command '{typed}'.\n  try: {meant}\n"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("clen", True),
        ("cleann", True),
        ("claan", True),
        ("plan", False),
        ("clear", True),
        ("clone", False),
        ("leaen", False),
    ],
)
def test_what_removes_files_is_offered_only_within_one_letter(typed, offered):
    assert (meant_command(typed, COMMANDS) == "gpudoc clean") is offered


def test_a_file_in_the_place_of_a_command_is_what_a_command_is_offered_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("job.py", "cfg.yaml", "train.log"):
        (tmp_path / name).write_text("x\n")
    assert meant_command("job.py", COMMANDS) == "gpudoc doctor -- python job.py"
    assert meant_command("cfg.yaml", COMMANDS) == "gpudoc tune --model cfg.yaml"
    assert meant_command("train.log", COMMANDS) == "gpudoc doctor train.log"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["train", "job.py"], "gpudoc train -- python job.py"),
        (["train", "python", "job.py"], "gpudoc train -- python job.py"),
        (["tune", "--budget", "2m", "my job.py"], "gpudoc tune --help"),
        (["tune", "--budget", "2m", "job.py", "--lr", "3"], "gpudoc tune --budget 2m -- python job.py --lr 3"),
        (["tune", "torchrun", "job.py"], "gpudoc tune -- torchrun job.py"),
        (["bench", "job.py"], "gpudoc tune -- python job.py"),
        (["train", "cfg.yaml"], "gpudoc train --model cfg.yaml"),
        (["tune", "quickstart"], "gpudoc tune --model quickstart"),
        (["bench", "cfg.yaml"], "gpudoc bench --help"),
        (["train", "nothing"], "gpudoc train --help"),
    ],
)
def test_a_script_or_a_config_without_its_option_leads_to_the_whole_line(typed, meant, capsys):
    assert app.run(typed) == 2
    assert f"  try: {meant}\n" in capsys.readouterr().err


def test_help_is_a_word_too(capsys):
    assert app.run(["help"]) == 0
    assert "Usage: gpudoc [OPTIONS] COMMAND" in capsys.readouterr().out
    assert app.run(["help", "tune"]) == 0
    assert "Usage: gpudoc tune" in capsys.readouterr().out


def test_the_help_of_usage_without_a_command_is_that_of_all():
    assert way_on(["--wrong"], "No such option: --wrong") == "gpudoc --help"


@pytest.mark.parametrize(
    ("text", "watched", "named"),
    [
        ("print(1)\n", ("--budget", "2m", "--only=loader"), ("--budget", "--only")),
        (PARSES, ("--epochs", "3"), ()),
        (PARSES, ("--epochs", "3", "--budget", "2m"), ("--budget",)),
        ("# the only budget\n", ("--only", "loader"), ("--only",)),
        ("from dataclasses import dataclass\nbudget: int = 1\n", ("--budget", "2"), ()),
        ("print(args.budget)\n", ("--budget", "2"), ()),
        ("import hydra\n", ("--budget", "2"), ()),
        ("print(1)\n", ("--lr", "3"), ()),
        ("print(1)\n", ("--json",), ("--json",)),
    ],
)
def test_options_of_gpudoc_behind_the_script_are_found_unless_the_script_names_them(tmp_path, text, watched, named):
    script = tmp_path / "job.py"
    script.write_text(text)
    found = misplaced_options(["tune"], ("python", str(script), *watched), OPTIONS)
    assert (found.options if found else ()) == named


def test_the_line_that_was_meant_moves_them_with_their_values(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(PARSES)
    watched = ("python", "job.py", "--budget", "2m", "--epochs", "3", "--json")
    found = misplaced_options(["tune", "--only", "loader"], watched, OPTIONS)
    assert found.said == "--budget and --json go to job.py, which does not mention them"
    assert found.hint.endswith(": gpudoc tune --only loader --budget 2m --json -- python job.py --epochs 3")


def test_a_module_or_no_script_at_all_is_left_alone(tmp_path):
    assert misplaced_options(["tune"], ("python", "-m", "job", "--budget", "2m"), OPTIONS) is None
    assert misplaced_options(["tune"], ("python", str(tmp_path / "no.py"), "--budget", "2m"), OPTIONS) is None


@pytest.mark.parametrize("command", ["tune", "train"])
def test_a_script_that_dies_of_an_option_of_gpudoc_is_said_before_and_after(tmp_path, command):
    (tmp_path / "job.py").write_text(PARSES)
    option = {"tune": ["--budget", "20s"], "train": ["--profile", "off"]}[command]
    done = subprocess.run(
        [sys.executable, "-m", "gpudoc", command, "--", sys.executable, "job.py", *option],
        capture_output=True, text=True, check=False, cwd=tmp_path, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    meant = f"put gpudoc's options before --: gpudoc {command} {' '.join(option)} -- {sys.executable} job.py"
    assert lines[0] == f"gpudoc: {option[0]} goes to job.py, which does not mention it; {meant}"
    assert lines[-1] == f"  try: {meant}"
    assert done.returncode in (1, 2)


def test_the_cause_to_explain_is_put_into_the_line_that_is_offered(capsys):
    assert app.run(["explain", "oom"]) == 2
    assert capsys.readouterr().err.endswith("try: gpudoc doctor --explain oom\n")
    assert meant_command("explain", COMMANDS, ["--json"]) == "gpudoc doctor --explain ID"
    assert meant_command("explain", COMMANDS, ["a;b"]) == "gpudoc doctor --explain 'a;b'"


def test_a_script_without_its_dashes_is_put_behind_them_for_fix_too(capsys):
    assert app.run(["fix", "--budget", "2m", "train.py", "--lr", "1"]) == 2
    assert "try: gpudoc fix --budget 2m -- python train.py --lr 1" in capsys.readouterr().err
