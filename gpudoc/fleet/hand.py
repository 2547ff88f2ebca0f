"""The parent's end of a process that has one GPU: starts it, gives it orders, and ends it at a deadline."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import IO

from gpudoc.bench.sampling import SamplingPlan
from gpudoc.bench.worker import plan_to_json
from gpudoc.process.arguments import own_module
from gpudoc.process.ending import end_family, how_it_ended

PROGRAM = own_module("gpudoc.fleet.child")
# importing torch and opening a GPU, eight at once on a cold file system
START_S = 120.0
_PATIENCE_S = 5.0


@dataclass(slots=True)
class OrderAnswer:
    """What a process said to one order, and why that is not all, if so; `hung` when it was ended at the deadline."""

    events: list[Mapping[str, object]] = field(default_factory=list)
    failed: str = ""
    hung: bool = False


class Hand:
    """One process on one device. `start` belongs to the thread that lives as long as the run: the kernel ends the
    process with the thread that started it.
    """

    def __init__(self, plan: SamplingPlan) -> None:
        self.plan = plan
        self.traits: Mapping[str, object] = {}
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._errors: IO[str] | None = None
        self._is_ready = False

    def start(self) -> None:
        """Start the process unless it is there; it gets ready while others start."""
        if self._process is not None and self._process.poll() is None:
            return
        self.end()
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed by `end`
        self._process = subprocess.Popen(
            PROGRAM,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            start_new_session=True,
        )
        self._lines = queue.Queue()
        assert self._process.stdout is not None
        threading.Thread(target=_pump, args=(self._process.stdout, self._lines), daemon=True).start()
        self._is_ready = False
        self._send(plan_to_json(replace(self.plan, parent_pid=os.getpid())))

    def ask(self, order: Mapping[str, object], seconds: float) -> OrderAnswer:
        """The answer to an order within `seconds` of it; a process that says nothing by then is ended."""
        answer = OrderAnswer()
        if not self._is_ready:
            if not self._listen(answer, START_S, "ready"):
                return answer
            self._is_ready = True
        self._send(json.dumps(order))
        self._listen(answer, seconds, "done")
        return answer

    def end(self) -> None:
        """End the process with all that it started; a thread that waits for an answer may do so at the same time."""
        process, errors = self._process, self._errors
        self._process, self._errors = None, None
        if process is not None:
            end_family(process, patience_s=_PATIENCE_S)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()
        if errors is not None:
            errors.close()

    def _send(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        # one that has ended is found so when it is listened to
        with suppress(OSError, ValueError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _listen(self, answer: OrderAnswer, seconds: float, last: str) -> bool:
        until = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                answer.failed, answer.hung = f"nothing was heard within {seconds:.0f} s", True
                break
            if line is None:
                answer.failed = self._last_words()
                break
            try:
                event = json.loads(line)
                name = event["event"]
            except (ValueError, KeyError, TypeError):
                # cut by a kill; its end is heard next
                continue
            if name == last:
                return True
            if name == "failed":
                answer.failed = str(event.get("because", "it failed without saying why"))
                break
            if name == "gpu":
                self.traits = event["values"]
            answer.events.append(event)
        self.end()
        return False

    def _last_words(self) -> str:
        assert self._process is not None
        assert self._errors is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE_S)
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.readlines() if line.strip()]
        return (
            f"its process {how_it_ended(self._process.returncode)}: {lines[-1][:300] if lines else 'it said nothing'}"
        )


def _pump(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    with suppress(ValueError, OSError):
        for line in stream:
            lines.put(line)
    lines.put(None)
