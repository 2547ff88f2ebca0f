"""The worker as it is run: a process that tells lines, and a probe that fails without taking the others along."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from gpudoc.facts.worker import PROBES


def run(*arguments):
    """What one worker tells, forked by a real launcher."""
    reader, writer = os.pipe()
    root, *probes = arguments
    code = "import sys; from gpudoc.facts.worker import main; main(sys.argv[1:])"
    plan = json.dumps({"only": [writer, probes]})
    process = subprocess.Popen([sys.executable, "-c", code, root, plan], pass_fds=[writer])
    os.close(writer)
    with os.fdopen(reader) as lines:
        told = [json.loads(line) for line in lines]
    assert process.wait(30) == 0
    return told


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


def test_a_worker_that_is_killed_by_a_fault_is_reported(tmp_path):
    code = (
        "import os, sys; from gpudoc.facts import worker; "
        "worker.PROBES['pci'] = lambda teller, root: os.abort(); worker.main(sys.argv[1:])"
    )
    reader, writer = os.pipe()
    plan = json.dumps({"only": [writer, ["pci"]]})
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), plan], pass_fds=[writer])
    os.close(writer)
    with os.fdopen(reader) as lines:
        told = [json.loads(line) for line in lines]
    assert process.wait(30) == 0
    assert told[-2:] == [{"begin": "pci"}, {"died": "ended by SIGABRT"}]
