"""The worker as it is run: a process that tells lines, and a probe that fails without taking the others along."""

from __future__ import annotations

import json
import subprocess
import sys

from gpudoc.facts.worker import PROBES


def run(*arguments, env=None):
    code = "import sys; from gpudoc.facts.worker import main; main(sys.argv[1:])"
    answer = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=env, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_probes_are_told_in_their_order_and_ended(tmp_path):
    lines = run(str(tmp_path), "pci", "nodes")
    assert [line["begin"] for line in lines if "begin" in line] == ["pci", "nodes"]
    assert lines[-1] == {"end": True}


def test_a_probe_that_fails_is_a_fact_and_the_next_goes_on(tmp_path):
    lines = run(str(tmp_path), "no such probe", "pci")
    assert {"fact": ["probe_failures", "no such probe"], "value": "KeyError: 'no such probe'"} in lines
    assert {"begin": "pci"} in lines


def test_every_probe_runs_on_this_machine():
    lines = run("/", *PROBES)
    assert not [line for line in lines if line.get("fact", [""])[0] == "probe_failures"]
