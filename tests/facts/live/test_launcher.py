import json
import os
import pathlib
import subprocess
import sys

from gpudoc.facts.live import launcher
from tests.waiting import wait_until


def launch(tmp_path, *command):
    orders, send = os.pipe()
    answers, told = os.pipe()
    pipes, files = (str(orders), str(told)), (tmp_path / "out", tmp_path / "err")
    started = subprocess.Popen(
        [sys.executable, "-I", "-S", launcher.__file__, *pipes, *files, *command],
        pass_fds=(orders, told),
        stderr=subprocess.PIPE,
    )
    os.close(orders)
    os.close(told)
    with os.fdopen(answers) as lines:
        return started, send, lines.readline().strip()


def test_it_becomes_the_program_of_the_order_and_stays_the_jobs_parent(tmp_path):
    started, send, answer = launch(tmp_path, "sleep", "60")
    job = int(answer)
    order = {"command": ["/bin/sh", "-c", "sleep 30; true"], "messages": str(tmp_path / "messages")}
    os.write(send, json.dumps(order).encode() + b"\n")
    try:
        wait_until(lambda: pathlib.Path(f"/proc/{started.pid}/comm").read_text().strip() == "sh")
        assert f"\nPPid:\t{started.pid}\n" in pathlib.Path(f"/proc/{job}/status").read_text()
        assert os.getpgid(job) == job
    finally:
        os.kill(job, 9)
        started.kill()
        started.communicate()
        os.close(send)


def test_when_the_orders_close_it_leaves_and_the_job_goes_on(tmp_path):
    started, send, answer = launch(tmp_path, "sh", "-c", "echo $PYTHONUNBUFFERED; sleep 60")
    os.close(send)
    assert started.wait(60) == 0
    job = int(answer)
    try:
        os.kill(job, 0)
        wait_until(lambda: (tmp_path / "out").read_text() == "1\n")
    finally:
        os.killpg(job, 9)
        started.stderr.close()


def test_a_command_that_does_not_exist_is_told(tmp_path):
    started, send, answer = launch(tmp_path, "no-such-program")
    _, errors = started.communicate()
    os.close(send)
    assert answer == ""
    assert started.returncode == 127
    assert b"no-such-program: No such file" in errors
