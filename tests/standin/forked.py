"""Python over the stand-in that need not import PyTorch again: forked from a process that has done that and no more.

The import takes seconds, most of what a small test would take. Nothing of CUDA is initialised by it, and what the
stand-in is told by its environment it reads when it is first asked, so that each fork has GPUs of its own.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
IMPORTED = ("torch", "torch._dynamo", "gpudoc.train.run")
_MESSAGE_BYTES = 1 << 17


def run(
    arguments: Sequence[str],
    environments: Sequence[Mapping[str, str]],
    *,
    code: str = "",
    folder: Path,
    timeout_s: float,
) -> subprocess.CompletedProcess[str]:
    """`code`, or gpudoc without one, in a process for each environment; their output together.

    The exit status is the first that is not 0, and then the others are ended, as torchrun does it.
    """
    wanted = {"arguments": arguments, "code": code, "folder": str(folder), "environments": environments}
    server, channel = _server()
    pids: list[int] = []
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            socket.send_fds(channel, [json.dumps(wanted).encode()], [out.fileno(), err.fileno()])
            pids = json.loads(channel.recv(_MESSAGE_BYTES))
            channel.settimeout(timeout_s)
            status = json.loads(channel.recv(_MESSAGE_BYTES))
            channel.settimeout(None)
        except BaseException:
            # whoever asks next gets a new one: what this one still answers would be taken for another's
            _server.cache_clear()
            server.kill()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(arguments), status, out.read(), err.read())


@functools.cache
def _server() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process that is forked, started when a test first needs it, and the socket to it; it ends with this one."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    return process, ours


def _serve(channel: socket.socket) -> dict[str, Any]:
    """Forks for each request until nobody asks any more; returns in the forked processes, with what each is to do."""
    while True:
        message, files, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 2)
        if not message:
            sys.exit()
        wanted = json.loads(message)
        pids = []
        for environment in wanted["environments"]:
            pid = os.fork()
            if pid == 0:
                channel.close()
                for number, file in enumerate(files, start=1):
                    os.dup2(file, number)
                    os.close(file)
                return {**wanted, "environment": environment}
            pids.append(pid)
        for file in files:
            os.close(file)
        channel.send(json.dumps(pids).encode())
        channel.send(json.dumps(_status(set(pids))).encode())


def _status(pids: set[int]) -> int:
    """The first exit status that is not 0; the processes that are left then are ended."""
    first = 0
    while pids:
        pid, status = os.wait()
        pids.discard(pid)
        if status and not first:
            first = os.waitstatus_to_exitcode(status)
            for other in pids:
                os.kill(other, signal.SIGTERM)
    return first


def _become(wanted: dict[str, Any]) -> None:
    """Goes on as `python -c CODE` or as `python -m gpudoc` does."""
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.path.insert(0, wanted["folder"])
    sys.argv = ["-c", *wanted["arguments"]]
    # what was read from the environment before it was this one
    importlib.import_module("standin_hook").load()
    if threads := os.environ.get("OMP_NUM_THREADS"):
        sys.modules["torch"].set_num_threads(int(threads))
    if not wanted["code"]:
        runpy.run_module("gpudoc", run_name="__main__", alter_sys=True)
        return
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(wanted["code"], "<string>", "exec"), program.__dict__)


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    # what is there now stays: a fork neither copies it nor looks through it for garbage
    gc.freeze()
    # the end of a fork is the interpreter's own: it comes when nothing is left to do here
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))
