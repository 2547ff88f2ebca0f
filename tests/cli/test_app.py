import json
import os
import subprocess
import sys

import pytest

import gpudoc
from gpudoc.cli import app

COMMANDS = ("doctor", "bench", "tune", "train", "demo", "check", "mcp", "clean")


def gpudoc_command(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "gpudoc", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100", **environment},
    )


def test_the_version():
    done = gpudoc_command("--version")
    assert (done.returncode, done.stdout) == (0, f"gpudoc {gpudoc.__version__}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    done = gpudoc_command(command, "--help")
    assert done.returncode == 0
    assert f"gpudoc {command}" in done.stdout
    assert "Example" in done.stdout


def test_help_names_every_command_and_imports_neither_torch_nor_rich():
    code = (
        "import sys\n"
        "from gpudoc.cli.app import run\n"
        "assert run(['--help']) == 0\n"
        "heavy = {'torch', 'rich.live', 'pydantic', 'numpy', 'pynvml'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in COMMANDS)


def test_importing_the_package_is_cheap():
    code = "import sys, gpudoc; sys.exit(bool({'torch', 'rich', 'typer', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["docter"], "No such command 'docter'"),
        (["doctor", "--nonsense"], "--nonsense"),
        (["tune", "--model", "no-such.yaml"], "no-such.yaml"),
        (["train", "--profile", "no-such.yaml", "--model", "quickstart"], "no-such.yaml"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_screen_without_a_traceback(arguments, says, capfd):
    assert app.run(arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert says in err
    assert "Traceback" not in err
    assert len(err.splitlines()) < 20


def test_with_json_a_failure_is_a_document_too(capfd):
    assert app.run(["tune", "--model", "no-such.yaml", "--json"]) == 2
    failure = json.loads(capfd.readouterr().out)
    assert failure["schema"] == "gpudoc.error.v1"
    assert "no-such.yaml" in failure["message"]


def test_a_fault_of_gpudoc_itself_says_how_to_report_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def explode(**_):
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(app, "application", lambda _: explode)
    assert app.run(["doctor"]) == 70
    said = capsys.readouterr().err
    (report,) = tmp_path.glob("gpudoc-fault-*.txt")
    assert str(report) in said
    assert "ZeroDivisionError" in report.read_text()


def test_a_machine_without_memory_is_no_fault_of_gpudoc(monkeypatch, capsys):
    def starve(**_):
        raise MemoryError

    monkeypatch.setattr(app, "application", lambda _: starve)
    assert app.run(["bench"]) == 2
    assert "cannot get more memory" in capsys.readouterr().err


def test_an_interrupt_is_130(monkeypatch):
    def interrupt(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "application", lambda _: interrupt)
    assert app.run(["bench"]) == 130


def test_what_follows_the_dashes_is_left_to_the_watched_command(monkeypatch):
    seen = {}

    def record(**options):
        seen.update(options)

    monkeypatch.setattr(app, "application", lambda _: record)
    app.run(["doctor", "--seconds", "5", "--", "python", "train.py", "--", "--json"])
    assert seen["args"] == ["doctor", "--seconds", "5"]
    assert seen["obj"].command == ("python", "train.py", "--", "--json")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_offers_the_commands(shell):
    environment = {
        "_GPUDOC_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "gpudoc ",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "gpudoc ",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = gpudoc_command(**environment)
    assert all(command in done.stdout for command in COMMANDS), done.stdout + done.stderr


def test_ctrl_c_that_no_command_answers_is_said_once_with_its_code(monkeypatch, capsys):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("gpudoc.render.catalogue.show_catalogue", interrupted)
    assert app.run(["doctor", "--list"]) == 130
    assert capsys.readouterr().err == "gpudoc: interrupted\n"
