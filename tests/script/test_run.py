"""A command runs as it would by itself: its output, its end, its signals; and what is known of it is told."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from gpudoc.errors import GpudocError
from gpudoc.script.apply import Applied
from gpudoc.script.messages import LoaderOrder, Order
from gpudoc.script.run import run
from tests.script.family import alive, marked
from tests.waiting import wait_until

TOLD = [sys.executable, "-m", "tests.script.told"]


class Heard:
    def __init__(self):
        self.streams = {1: b"", 2: b""}
        self.said = []
        self.statuses = []

    def output(self, number, data):
        self.streams[number] += data

    def say(self, text):
        self.said.append(text)

    def status(self, status):
        self.statuses.append(status)


def run_here(*words, order=None, **more):
    heard = Heard()
    return heard, run(Applied(words=words, order=order or Order(purpose="run")), heard, **more)


@pytest.mark.parametrize(
    ("script", "code", "exit_code"),
    [("exit 0", 0, 0), ("exit 3", 3, 3), ("exit 255", 255, 255), ("kill -SEGV $$", -11, 139), ("kill -9 $$", -9, 137)],
)
def test_output_and_end_are_the_commands(script, code, exit_code):
    heard, finished = run_here("sh", "-c", f"echo out; echo err >&2; {script}")
    assert heard.streams == {1: b"out\n", 2: b"err\n"}
    assert (finished.code, finished.exit_code) == (code, exit_code)
    assert finished.seen == ()
    assert finished.status is finished.split is None
    assert not finished.interrupted


def test_a_command_that_cannot_be_started_is_the_users_mistake():
    with pytest.raises(GpudocError, match="no-such-program") as caught:
        run_here("no-such-program")
    assert caught.value.exit_code == 2


def test_standard_input_is_the_commands():
    code = (
        "from tests.script.test_run import run_here; import sys; "
        "sys.stdout.write(run_here('cat')[0].streams[1].decode())"
    )
    done = subprocess.run([sys.executable, "-c", code], input="typed\n", capture_output=True, text=True, check=True)
    assert done.stdout == "typed\n"


def test_the_order_reaches_the_script_and_what_it_told_is_known(monkeypatch):
    order = Order(purpose="run", keys=("train.py:4",), loader=LoaderOrder(num_workers=4))
    heard, finished = run_here(*TOLD, order=order)
    assert b'"num_workers": 4' in heard.streams[1]
    assert finished.status.steps == 10
    assert finished.status.samples_per_s == 40.0
    assert finished.status.wait_share == 0.5
    assert finished.status.peak_bytes == 3 << 20
    assert finished.split.data_wait == finished.split.steps == 1.0
    assert finished.split.start + finished.split.end <= finished.seconds
    assert finished.ranks[0].loaders[0].refused == {"pin_memory": "no GPU"}


def test_a_line_that_is_no_event_does_not_end_the_run():
    heard, finished = run_here("sh", "-c", 'echo nonsense > "$GPUDOC_SCRIPT_FOLDER/0-1.jsonl"; sleep 1.5; echo done')
    assert (finished.code, heard.streams[1]) == (0, b"done\n")
    assert [text for text in heard.said if "not watched any more" in text]


def test_the_cause_of_a_death_is_doctors():
    message = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "15.77 GiB of which 1.20 GiB is free. Of the allocated memory 13.90 GiB is allocated by PyTorch, and 120.00 "
        "is reserved by PyTorch but unallocated."
    )
    _, finished = run_here("sh", "-c", f"echo '{message}' >&2; exit 1")
    assert finished.report.findings[0].id == "oom_capacity"
    assert any("13.9" in seen.value for seen in finished.report.findings[0].evidence)
    assert run_here("sh", "-c", f"echo '{message}' >&2")[1].report is None


def test_who_outlives_the_command_is_asked_then_ended():
    environment = marked()
    code = (
        "from tests.script.test_run import run_here; from gpudoc.script import run as module; module.LEFT_S = 0.1; "
        "print(run_here('sh', '-c', 'trap \"\" TERM; sleep 600 & setsid sleep 601 & exit 4')[1].left)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.count("sleep (pid ") == 2
    assert alive(environment) == []


RUN = """
import signal, sys
# under nohup a shell cannot trap it
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from tests.script.test_run import Heard
from gpudoc.script.apply import Applied
from gpudoc.script.messages import Order
from gpudoc.script.run import run
heard = Heard()
heard.say = lambda text: print(text.partition(":")[0], flush=True)
finished = run(Applied(words=("sh", "-c", sys.argv[1]), order=Order(purpose="run")), heard)
print(finished.exit_code, finished.interrupted, finished.report is None, flush=True)
"""


class Run:
    """gpudoc in a process of its own that runs a shell script, which says that it is ready in a file."""

    def __init__(self, tmp_path, script):
        self.environment = marked()
        self.ready = tmp_path / "ready"
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, script.replace("READY", f"touch {self.ready}")],
            env=self.environment, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        wait_until(self.ready.exists)

    def finish(self):
        said = self.process.communicate(timeout=120)[0]
        wait_until(lambda: alive(self.environment) == [])
        return said.splitlines()[-1].split() if said else []


DEAF = "trap '' INT TERM; sleep 600 & setsid sleep 601 & READY; while :; do sleep 0.05; done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_goes_to_the_script_which_ends_in_its_own_way(tmp_path, number):
    run = Run(tmp_path, f"trap 'exit 75' {number}; READY; while :; do sleep 0.05; done")
    run.process.send_signal(number)
    assert run.finish() == ["75", "False", "False"]


def test_a_script_that_a_signal_to_us_ends_is_no_failure_to_explain(tmp_path):
    run = Run(tmp_path, "READY; sleep 600; exit 1")
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == ["143", "True", "True"]


def test_ctrl_c_lets_the_script_end_by_itself(tmp_path):
    # a shell may lose an interrupt that comes just when its command ends
    code = "import os, signal, sys, time; signal.signal(2, lambda *_: sys.exit(6)); "
    code += "os.system(sys.argv[1]); time.sleep(600)"
    run = Run(tmp_path, f"exec {sys.executable} -c '{code}' 'READY'")
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == ["6", "True", "True"]


def test_a_second_ctrl_c_ends_a_script_that_does_not_hear_the_first(tmp_path):
    run = Run(tmp_path, DEAF)
    run.process.send_signal(signal.SIGINT)
    wait_until(lambda: run.process.stdout.readline() == "interrupted\n")
    # two at once would be one wish
    time.sleep(0.4)
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == ["130", "True", "True"]


def test_gpudoc_killed_leaves_nothing_running(tmp_path):
    run = Run(tmp_path, DEAF)
    assert len(alive(run.environment)) >= 5
    run.process.kill()
    run.finish()
