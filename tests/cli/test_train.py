"""The command: its help, one JSON document, and nothing heavy before it is needed."""

from __future__ import annotations

import json
import subprocess
import sys

from gpudoc.cli.app import run
from tests.train.support import environment, train_here, write_workload


def test_the_help_shows_an_example_and_every_option_of_the_contract(capsys):
    assert run(["train", "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example: gpudoc train --model cfg.yaml --profile auto" in text
    for option in [
        "--profile",
        "--model",
        "--device",
        "--steps",
        "--epochs",
        "--batch-size",
        "--num-workers",
        "--precision",
        "--memory-limit",
        "--run-dir",
        "--resume",
        "--gpus",
        "--slurm",
        "--no-preflight",
        "--prove-resume",
        "--trace",
        "--log-to",
        "--set",
        "--json",
        "--html",
        "--plain",
        "--verbose",
    ]:
        assert option in text, option


def test_json_is_one_document_also_for_a_mistake(tmp_path, capsys):
    write_workload(tmp_path)
    assert train_here(tmp_path, "--model", "cfg.yaml", "--profile", "off", "--steps", 1, "--json") == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 1
    assert train_here(tmp_path, "--model", "cfg.yaml", "--set", "nonsense=1", "--json") == 2
    assert json.loads(capsys.readouterr().out)["schema"] == "gpudoc.error.v1"


def test_the_help_does_not_import_torch():
    program = "import sys; from gpudoc.cli.app import run; run(['train', '--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, timeout=60)
    assert done.returncode == 0


WITHOUT_TORCH = """
import sys
# whoever imports it fails
sys.modules["torch"] = None
import gpudoc.train.watch.recorder, gpudoc.train.watch.watching
from gpudoc.cli.app import run
from gpudoc.train.start import place
place.launch = lambda arguments, **how: print(how["ranks"], "ranks are started") or 0
line = ["train", "--device", "cpu", "--model"]
print(run([*line, "none.yaml"]), run([*line, "quickstart", "--gpus", "2"]))
"""


def test_ranks_are_started_and_a_config_is_refused_without_torch(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert done.stdout == "2 ranks are started\n2 0\n", done.stderr
    assert "no such config" in done.stderr
