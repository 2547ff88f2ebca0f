import os
import subprocess
import sys

import pytest

from gpudoc.cli import app


def tune(*arguments):
    command = [sys.executable, "-m", "gpudoc", "tune", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"})


def test_help_has_an_example_and_every_option():
    text = tune("--help").stdout
    assert "gpudoc tune --model cfg.yaml" in text
    for option in ("--budget", "--goal", "--only", "--max-batch", "--memory-limit", "--out", "--html", "--fresh"):
        assert option in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--model"),
        (("--model", "quikstart"), "quickstart"),
        (("--model", "quickstart", "--goal", "luck"), "no such goal"),
        (("--model", "quickstart", "--budget", "1s"), "too short"),
        (("--model", "quickstart", "--device", "toaster"), "toaster"),
    ],
)
def test_refusals(arguments, says, capfd):
    assert app.run(["tune", *arguments]) == 2
    said = capfd.readouterr().err
    assert says in said
    assert "Traceback" not in said
