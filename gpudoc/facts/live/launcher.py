"""Starts a job and then becomes its sampler: run as a program by `launch`, never imported by it.

The order of things matters. `py-spy record -- job` would end the job with the sampling, and a pipe for the job's output
would kill the job when the reader dies; so the job is forked here, writes into files, and is separated from us by
its own process group. Yama's ptrace scope 1 lets only an ancestor look into a process: this process is the job's
parent, and becomes py-spy by exec when asked to.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys


def start(command: list[str], stdout: str, stderr: str) -> int:
    """Fork the job, with its output in two files; returns its process id, exits with 127 if it cannot start."""
    ready, told = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child:
        os.close(told)
        failure = os.read(ready, 4096)
        os.close(ready)
        if failure:
            sys.stderr.write(failure.decode("utf-8", "replace"))
            sys.exit(127)
        return child
    try:
        os.setpgid(0, 0)
        _become_the_job(command, stdout, stderr)
    except OSError as problem:
        os.write(told, f"{command[0]}: {problem.strerror}".encode())
    finally:
        os._exit(127)


def _become_the_job(command: list[str], stdout: str, stderr: str) -> None:
    for number, place in ((1, stdout), (2, stderr)):
        file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
        _lock(number)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(name, signal.SIG_DFL)
    os.execvpe(command[0], command, {**os.environ, "PYTHONUNBUFFERED": "1"})  # noqa: S606 - to become it is the purpose


def _lock(file: int) -> None:
    """Lock the output, so that the kernel shows it as in use while a process of the job can write into it."""
    for take in (fcntl.flock, fcntl.lockf):
        try:
            take(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        return


def main(arguments: list[str]) -> None:
    """Start the job, report its process id, wait for one line of JSON, and become the program that it names.

    If the pipe closes without a line, the parent has gone, and the job goes on alone.
    """
    orders, answers = int(arguments[0]), int(arguments[1])
    job = start(arguments[4:], arguments[2], arguments[3])
    for number in (orders, answers):
        os.set_inheritable(number, False)
    os.write(answers, f"{job}\n".encode())
    os.close(answers)
    with os.fdopen(orders, "rb") as lines:
        line = lines.readline()
    if not line:
        os._exit(0)
    order = json.loads(line)
    messages = os.open(order["messages"], os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(messages, 1)
    os.dup2(messages, 2)
    os.execv(order["command"][0], order["command"])  # noqa: S606 - to become it is the purpose


if __name__ == "__main__":
    main(sys.argv[1:])
