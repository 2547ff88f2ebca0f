"""The warm process of a search: it imports and reads once, then forks a fresh process for every trial.

Nothing before a fork may start threads or touch CUDA. Messages are JSON in a sequenced-packet socket, so that several
processes can write to it without mixing.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudoc.tune.probe import Prepared
    from gpudoc.workload.build import Workload

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
MAX_MESSAGE = 1 << 16


@dataclass(frozen=True, slots=True)
class _Child:
    id: int
    rank: int
    pid: int
    pidfd: int
    group: int


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when `parent` dies, even by SIGKILL; ends at once if it already has."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def send(channel: socket.socket, message: Mapping[str, object]) -> None:
    """One message; what is too long for a packet loses its traceback and detail."""
    data = json.dumps(message).encode()
    if len(data) > MAX_MESSAGE:
        data = json.dumps({k: v[:2000] if isinstance(v, str) else v for k, v in message.items()}).encode()
    channel.send(data)


def main(handle: int, source: str, parent: int) -> None:
    """Prepare the workload named `source`, say so over the socket `handle`, then run what is asked until it closes."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    die_with_parent(parent)
    # the parent decides what they mean, and tells
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel = socket.socket(fileno=handle)
    try:
        prepared = _prepare(source, channel)
    except Exception as problem:
        send(channel, _failure(problem))
        return
    Template(channel, prepared).serve()
    # everything it started is gone: taking torch apart would only keep the parent waiting
    os._exit(0)


def _prepare(source: str, channel: socket.socket) -> Prepared:
    import torch

    from gpudoc.tune.probe import Prepared
    from gpudoc.tune.samples import Samples, collect_samples
    from gpudoc.workload.build import load_workload

    num_threads = torch.get_num_threads()
    # a pool of OpenMP threads does not survive a fork: nothing may run in parallel before it
    torch.set_num_threads(1)
    workload = load_workload(source)
    workload.step()
    _import_what_steps_import(workload)
    samples = collect_samples(workload)
    # what cannot be collated is said before anything is tried
    samples.typical(min(8, samples.count))
    samples.worst(min(2, samples.count))
    held_out = workload.eval_dataset
    has_eval = held_out is not None and hasattr(held_out, "__len__")
    eval_samples = Samples(held_out, workload.collate, len(held_out)) if has_eval else None  # type: ignore[arg-type]
    ready = {
        "event": "ready",
        "num_samples": samples.count,
        "scanned_all": samples.scanned_all,
        "sizes_differ": samples.sizes_differ,
        "num_threads": num_threads,
        "can_fork": not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        and threading.active_count() == 1,
    }
    send(channel, ready)
    return Prepared(workload=workload, samples=samples, eval_samples=eval_samples, num_threads=num_threads)


def _import_what_steps_import(workload: Workload) -> None:
    """Let an optimizer of the workload's kind step once on a single number: that imports two seconds' worth of code."""
    import torch

    import gpudoc.train.build
    import gpudoc.train.finish
    import gpudoc.train.loop  # noqa: F401  the process that will train has all of this in memory too

    model = torch.nn.Linear(1, 1)
    # whatever fails here fails again in a trial, where it is reported
    with contextlib.suppress(Exception):
        optimizer = workload.build_optimizer(model)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.zero_grad(set_to_none=False)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def _failure(problem: Exception) -> Mapping[str, object]:
    text = "".join(traceback.format_exception(problem))
    return {
        "event": "failed",
        "kind": type(problem).__name__,
        "message": str(getattr(problem, "message", "")) or f"{type(problem).__name__}: {problem}",
        "hint": str(getattr(problem, "hint", "")),
        "traceback": text[-8000:],
    }


class Template:
    """The loop of the warm process: forks trials on request, tells how they ended, leaves no process behind."""

    def __init__(self, channel: socket.socket, prepared: Prepared) -> None:
        self._channel = channel
        self._prepared = prepared
        self._children: dict[int, _Child] = {}

    def serve(self) -> None:
        """Run requests until the parent closes the socket."""
        while True:
            handles = [self._channel.fileno(), *self._children]
            readable, _, _ = select.select(handles, [], [])
            for handle in readable:
                if handle in self._children:
                    self._reap(handle)
                elif handle == self._channel.fileno():
                    data = self._channel.recv(MAX_MESSAGE * 2)
                    if not data:
                        self._end_all()
                        return
                    self._start(json.loads(data))

    def _start(self, message: Mapping[str, object]) -> None:
        from gpudoc.tune.trial import Request

        request = Request.model_validate(message["request"])
        group = 0
        pids = []
        for rank in range(request.ranks):
            pid = os.fork()
            if pid == 0:
                self._become_trial(message, request, rank, group)
            group = group or pid
            # both sides set the group, so that it is set whoever runs first
            _set_group(pid, group)
            handle = os.pidfd_open(pid)
            self._children[handle] = _Child(int(str(message["id"])), rank, pid, handle, group)
            pids.append(pid)
        send(self._channel, {"event": "started", "id": message["id"], "group": group, "pids": pids})

    def _become_trial(self, message: Mapping[str, object], request: object, rank: int, group: int) -> None:
        """The forked side: its own group, its own log, one trial, and no return."""
        from gpudoc.tune.foresight import run_plan
        from gpudoc.tune.inspection import inspect_workload
        from gpudoc.tune.probe import run_probe
        from gpudoc.tune.rank import place_of
        from gpudoc.tune.trial import Request

        status = 1
        try:
            die_with_parent(os.getppid())
            _set_group(0, group)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            log = os.open(str(message["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)

            def emit(event: Mapping[str, object]) -> None:
                send(self._channel, {**event, "id": message["id"], "rank": rank})

            assert isinstance(request, Request)
            place = place_of(_mapping(message["place"]), rank, request.ranks)
            if message.get("inspect"):
                inspect_workload(self._prepared, place, emit)
            elif request.kind == "plan":
                run_plan(self._prepared, request, place, emit)
            else:
                run_probe(self._prepared, request, place, emit)
            sys.stdout.flush()
            sys.stderr.flush()
            status = 0
        finally:
            os._exit(status)

    def _reap(self, handle: int) -> None:
        child = self._children.pop(handle)
        _, wait_status = os.waitpid(child.pid, 0)
        os.close(handle)
        siblings = [other for other in self._children.values() if other.id == child.id]
        if not siblings:
            _kill_group(child.group)
            self._kill_strays()
        status = os.waitstatus_to_exitcode(wait_status)
        send(self._channel, {"event": "exit", "id": child.id, "rank": child.rank, "status": status})

    def _kill_strays(self) -> None:
        """Kill adopted orphans: what a trial started and left in another group comes to this process."""
        known = {child.pid for child in self._children.values()}
        for pid in _own_children():
            if pid not in known:
                _kill(pid)
                _wait(pid)

    def _end_all(self) -> None:
        for child in self._children.values():
            _kill_group(child.group)
        self._children.clear()
        self._kill_strays()


def _own_children() -> list[int]:
    path = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    return [int(pid) for pid in path.read_text().split()]


def _mapping(value: object) -> Mapping[str, object]:
    assert isinstance(value, dict)
    return value


def _set_group(pid: int, group: int) -> None:
    try:
        os.setpgid(pid, group)
    except (PermissionError, ProcessLookupError):
        return


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (PermissionError, ProcessLookupError):
        return


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return
