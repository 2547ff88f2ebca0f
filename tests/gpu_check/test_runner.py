"""A step of gpu-check ends with all that it started, whatever happens, and says what went wrong."""

import subprocess
import sys

import psutil
import pytest

from benchmarks.gpu_check import runner
from benchmarks.gpu_check.model import Result, Step
from benchmarks.gpu_check.steps import by_result, by_status
from tests.waiting import wait_until

# starts a process in a separate session, says its number, and leaves the ending to others
STARTS = (
    "import subprocess, sys; "
    "one = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True); "
    "print(one.pid, flush=True); "
)


@pytest.fixture(autouse=True)
def no_card(monkeypatch):
    monkeypatch.setattr(runner, "held", lambda: ())
    with runner.stoppable():
        yield


def step(code, **changes):
    command = (sys.executable, "-c", code)
    return Step(**{"name": "one", "command": command, "limit_s": 60.0, "judge": by_status, **changes})


def assert_ended(pid):
    """A busy kernel needs a moment to carry out a SIGKILL."""

    def ended():
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    wait_until(ended)


def test_a_step_over_its_limit_is_ended_with_what_left_its_session_and_keeps_what_it_printed():
    said = "sys.stderr.buffer.write(bytes([255]) + b' RuntimeError: no\\n'); sys.stderr.flush()"
    code = f"{STARTS} import time; {said}; time.sleep(600)"
    outcome = runner.run_step(step(code), 4.0, ())
    assert outcome.state == "cut"
    assert "one did not end within 4 s, and its processes were ended" in outcome.sentences[0]
    assert "RuntimeError: no" in outcome.sentences[0]
    assert "b'" not in outcome.output
    assert_ended(int(outcome.output.split()[0]))


def test_a_step_that_leaves_a_process_behind_fails_and_the_process_is_ended(monkeypatch):
    monkeypatch.setattr(runner, "GRACE_S", 0.2)
    done = runner.run_step(step(STARTS), 60.0, ())
    assert done.state == "failed"
    assert "one left a process running, which was ended: pid" in done.sentences[0]
    assert_ended(int(done.output.split()[0]))


def test_what_ran_before_the_step_is_neither_ended_nor_counted():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as own:
        done = runner.run_step(step("pass"), 60.0, ())
        assert (done.state, own.poll()) == ("passed", None)


def test_a_signal_in_the_middle_ends_the_step_and_puts_back_what_it_changed(tmp_path):
    undo = (sys.executable, "-c", f"open({str(tmp_path / 'back')!r}, 'w')")
    code = f"{STARTS} import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(600)"
    code = code.replace("print(one.pid", f"print(one.pid, file=open({str(tmp_path / 'pid')!r}, 'w')")
    with pytest.raises(runner.StopError, match="SIGINT"):
        runner.run_step(step(code, undo=(undo,)), 60.0, ())
    assert_ended(int((tmp_path / "pid").read_text()))
    assert (tmp_path / "back").exists()


def test_a_signal_that_comes_before_the_process_has_a_name_ends_it_too(monkeypatch):
    start, started = subprocess.Popen, []

    def interrupted(*arguments, **options):
        started.append(start(*arguments, **options))
        raise runner.StopError("SIGINT")

    monkeypatch.setattr(runner.subprocess, "Popen", interrupted)
    with pytest.raises(runner.StopError):
        runner.run([sys.executable, "-c", "import time; time.sleep(600)"], 60.0)
    assert_ended(started[0].pid)


def test_memory_that_is_still_held_on_a_gpu_fails_the_step(monkeypatch):
    monkeypatch.setattr(runner, "SETTLE_S", 0.0)
    monkeypatch.setattr(runner, "held", lambda: (100 << 20, 612 << 20, None))
    outcome = runner.run_step(step("pass"), 60.0, (100 << 20, 100 << 20, None))
    assert outcome.sentences == ["GPU 1 still holds 512 MiB more than before the first step"]


def test_a_check_that_dies_is_named_by_its_error_and_not_by_the_advice_behind_it():
    code = "import sys; sys.exit('torch.AcceleratorError: CUDA error: unknown error\\nCompile with advice')"
    outcome = runner.run_step(step(code, judge=by_result), 60.0, ())
    assert outcome.state == "failed"
    assert outcome.sentences == ["one ended with exit status 1: torch.AcceleratorError: CUDA error: unknown error"]


def test_a_check_that_prints_its_result_passes_with_its_facts():
    line = Result(facts={"gpus": 1}).to_line()
    outcome = runner.run_step(step(f"print('before'); print({line!r})", judge=by_result), 60.0, ())
    assert (outcome.state, outcome.facts) == ("passed", {"gpus": 1})


def test_a_step_has_a_session_that_no_terminal_interrupts():
    assert runner.run([sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())"], 60.0).output == "True\n"
