"""The door: real children on this machine, hanging and dying children, and nothing that waits for them."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from gpudoc import facts
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence
from gpudoc.errors import GpudocError
from gpudoc.facts.collection import Deadlines, examined_python
from gpudoc.facts.model import Absent
from gpudoc.process.lifetime import is_running
from tests.fakes.hurry import hurried, slow
from tests.fakes.machine import GIB, H100, FakeMachine
from tests.waiting import wait_until


def script(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_this_machine_is_described():
    machine = facts.collect()
    assert machine.python.version == ".".join(map(str, sys.version_info[:3]))
    assert isinstance(machine.torch.version, str)
    assert machine.torch.is_available in (True, False)
    assert isinstance(machine.host.cpus_usable, float)
    assert not isinstance(machine.python.packages, Absent)
    assert {"pytest"} <= {package.name for package in machine.python.packages}
    assert machine.probe_failures == {}
    assert set(machine.probe_seconds) == {"torch", "nvml", "cuda", "files", "slow_files", "collect"}


def test_quick_reads_the_build_without_importing_torch():
    machine = facts.collect(quick=True)
    assert isinstance(machine.torch.version, str)
    assert machine.torch.is_available == Absent("not asked (--quick)")


def test_importing_the_room_imports_nothing_heavy():
    heavy = ("torch", "pydantic", "rich", "typer", "numpy", "pynvml", "yaml")
    code = f"import sys, gpudoc.facts; print([m for m in {heavy!r} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_a_python_that_hangs_is_left_behind_and_named(tmp_path):
    python = script(tmp_path, "exec sleep 600")
    machine = facts.collect(python=python, deadlines=Deadlines(torch_s=0.5))
    assert machine.torch.version == Absent("no answer within 0.5 s: it did not start")
    assert machine.probe_failures["torch"].startswith("no answer within 0.5 s")
    assert isinstance(machine.host.cpu_count, int)


def test_what_was_told_before_a_hang_is_kept(tmp_path):
    line = '{"fact": ["torch", "version"], "value": "2.6.0+cu124"}'
    python = script(tmp_path, f"echo '{line}'; echo '{{\"begin\": \"import torch\"}}'; exec sleep 600")
    with hurried(["import torch"]):
        machine = facts.collect(python=python)
    assert machine.torch.version == "2.6.0+cu124"
    assert machine.torch.is_available == Absent("no answer within 13 s: import torch")


def test_a_python_that_crashes_is_a_fact(tmp_path):
    python = script(tmp_path, 'echo \'{"begin": "import torch"}\'; kill -SEGV $$')
    machine = facts.collect(python=python)
    assert machine.probe_failures["torch"] == "ended by SIGSEGV while asking: import torch"


def test_children_are_killed_with_their_own_children(tmp_path):
    note = tmp_path / "pid"
    python = script(tmp_path, f"sleep 600 & echo $! > {note}; wait")

    def wait_for_the_grandchild():
        wait_until(lambda: note.exists() and note.read_text().strip())

    facts.collect(python=python, deadlines=Deadlines(torch_s=0.5), meanwhile=wait_for_the_grandchild)
    grandchild = note.read_text()
    wait_until(lambda: not is_running(int(grandchild)))


def test_nothing_ever_waits_for_a_child(tmp_path, monkeypatch):
    # a process stuck in a driver survives SIGKILL: waiting for it would be for ever
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("waited for a child")

    monkeypatch.setattr(subprocess.Popen, "wait", refuse)
    monkeypatch.setattr(subprocess.Popen, "communicate", refuse)
    facts.collect(python=script(tmp_path, "exec sleep 600"), deadlines=Deadlines(torch_s=0.5))


def test_a_python_that_is_not_there_is_the_users_mistake(tmp_path):
    for place in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(GpudocError, match="not a usable Python"):
            facts.collect(python=place)


def test_the_deadlines_keep_the_promise_of_fifteen_seconds():
    assert max(asdict(Deadlines()).values()) < 15


def test_everything_hanging_at_once_ends_at_the_deadlines_which_run_side_by_side(tmp_path):
    machine = FakeMachine(tmp_path / "m")
    machine.driver()
    machine.gpus(H100)
    machine.torch(import_delay=600)
    for function in ("nvmlInit", "cuInit", "open:/dev/nvidiactl", "open:/dev/kmsg", "statvfs:/dev/shm"):
        machine.hang(function)
    # the probes that open files hang in these
    machine.hanging |= {"host", "kernel_log"}
    collected = machine.collect(deadlines=Deadlines(torch_s=6.0, driver_s=5.0, files_s=5.0))
    assert set(collected.probe_failures) == {"torch", "nvml", "cuda", "files", "slow_files"}
    assert collected.probe_failures["nvml"] == "no answer within 5 s, stuck in the kernel: nvmlInit"
    report = diagnose(Evidence(source="machine", machine=collected))
    assert "driver_not_answering" in {finding.id for finding in report.findings}
    assert report.verdict == "broken"


def test_eight_gpus_that_take_three_seconds_each_to_start_are_all_described(tmp_path):
    machine = FakeMachine(tmp_path / "m")
    machine.driver()
    machine.gpus(H100, 8)
    with slow("nvmlDeviceGetHandleByIndex", 3.0):
        collected = machine.collect(quick=True)
    assert "nvml" not in collected.probe_failures
    assert [gpu.memory_total_bytes for gpu in collected.gpus] == [80 * GIB] * 8


@pytest.mark.parametrize(("count", "patience_s"), [(1, 8), (8, 36)])
def test_the_more_gpus_the_driver_may_have_to_start_the_longer_it_is_waited_for(tmp_path, count, patience_s):
    machine = FakeMachine(tmp_path / "m")
    machine.driver()
    machine.gpus(H100, count)
    machine.be_silent("cuInit")
    assert machine.collect(quick=True).probe_failures["cuda"] == f"no answer within {patience_s} s: cuInit"


def test_a_driver_that_is_slow_at_every_question_is_not_heard_out_for_ever(tmp_path):
    machine = FakeMachine(tmp_path / "m")
    machine.driver()
    machine.gpus(H100)
    machine.be_silent("nvmlDeviceGetMemoryInfo")
    with slow("nvmlDeviceGetUUID", 30.0):
        collected = machine.collect(quick=True)
    # which question was the last one heard is a matter of how much one read of the pipe brings
    assert collected.probe_failures["nvml"].startswith("answers are still coming after 24 s: nvmlDeviceGet")


def test_what_is_done_meanwhile_runs_between_asking_and_hearing(tmp_path):
    note = tmp_path / "started"
    python = script(tmp_path, f"touch {note}; echo '{{\"end\": true}}'")

    def wait_for_the_child():
        wait_until(note.exists)

    facts.collect(python=python, meanwhile=wait_for_the_child)


def test_a_failure_meanwhile_leaves_no_child_behind(tmp_path):
    note = tmp_path / "pid"
    python = script(tmp_path, f"echo $$ > {note}; exec sleep 600")

    def fail():
        while not note.exists() or not note.read_text().strip():
            time.sleep(0.05)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        facts.collect(python=python, meanwhile=fail)
    wait_until(lambda: not is_running(int(note.read_text())))


def test_the_active_environment_is_examined(tmp_path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    assert examined_python({"VIRTUAL_ENV": str(tmp_path)}) == python
    assert examined_python({"CONDA_PREFIX": str(tmp_path)}) == python
    assert examined_python({}) == Path(sys.executable)
