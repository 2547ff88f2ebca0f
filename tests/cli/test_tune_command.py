import io
import json
import sys

import pytest

from gpudoc.cli import app
from gpudoc.cli.tune import may_run_in_place


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--", "no-such-command-here"], "no such command"),
        (["--gpus", "2", "--", "python3", "-c", "pass"], "--gpus goes with --model"),
        (["--device", "cpu", "--", "python3", "-c", "pass"], "--device goes with --model"),
        (["--model", "quickstart", "--", "python3", "-c", "pass"], "exclude each other"),
        (["--only", "speed", "--", "python3", "-c", "pass"], "--only: no such part: speed"),
        (["--model", "quickstart", "--in-place"], "--in-place goes with a command"),
        (["--model", "quickstart", "--allow", "network"], "--allow goes with a command"),
        ([], "nothing to tune"),
    ],
)
def test_what_makes_no_sense_with_a_command_is_refused(arguments, says, capfd):
    assert app.run(["tune", *arguments]) == 2
    said = capfd.readouterr().err
    assert says in said
    assert "Traceback" not in said


def test_a_refusal_is_a_document_with_json(capfd):
    words = [sys.executable, "-c", "print('no torch here')"]
    assert app.run(["tune", "--json", "--in-place", "--", *words]) == 2
    told = json.loads(capfd.readouterr().out)
    assert told["schema"] == "gpudoc.error.v1"
    assert "without importing torch" in told["message"]


@pytest.mark.parametrize(
    ("typed", "yes"), [("y\n", True), ("yes\n", True), ("\n", False), ("no\n", False), ("", False)]
)
def test_no_is_the_answer_that_needs_no_typing(typed, yes, monkeypatch, capfd):
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert may_run_in_place("trials cannot be isolated here") is yes
    assert "[y/N]" in capfd.readouterr().err
