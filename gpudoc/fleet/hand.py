"""The parent's end of a process that has one GPU: starts it, gives it orders, and ends it at a deadline."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpudoc.bench.sampling import SamplingPlan
from gpudoc.bench.worker import plan_to_json
from gpudoc.process.arguments import own_module
from gpudoc.process.conversation import Conversation

PROGRAM = own_module("gpudoc.fleet.child")
# importing torch and opening a GPU, eight at once on a cold file system
START_S = 120.0
_PATIENCE_S = 5.0


@dataclass(slots=True)
class OrderAnswer:
    """A process's answer to one order, with a reason if it is incomplete; `hung` if it was ended at the deadline."""

    events: list[Mapping[str, object]] = field(default_factory=list)
    failed: str = ""
    hung: bool = False


class Hand:
    """One process on one device. Call `start` in a thread that lives as long as the run: the kernel ends the
    process with the thread that started it.
    """

    def __init__(self, plan: SamplingPlan) -> None:
        self.plan = plan
        self.traits: Mapping[str, object] = {}
        self._child: Conversation | None = None
        self._is_ready = False

    def start(self) -> None:
        """Start the process unless it runs already; it gets ready while others start."""
        if self._child is not None and self._child.process.poll() is None:
            return
        self.end()
        self._child = Conversation(PROGRAM, {**os.environ, "PYTHONWARNINGS": "ignore"})
        self._is_ready = False
        self._child.say(plan_to_json(replace(self.plan, parent_pid=os.getpid())).encode())

    def ask(self, order: Mapping[str, object], seconds: float) -> OrderAnswer:
        """The answer to an order within `seconds`; ends a process that has not answered by then."""
        answer, child = OrderAnswer(), self._child
        assert child is not None
        if not self._is_ready:
            if not self._listen(child, answer, START_S, "ready"):
                return answer
            self._is_ready = True
        child.say(json.dumps(order).encode())
        self._listen(child, answer, seconds, "done")
        return answer

    def end(self) -> None:
        """End the process and all its children; safe while a thread still waits for an answer."""
        child, self._child = self._child, None
        if child is not None:
            child.end(_PATIENCE_S)

    def _listen(self, child: Conversation, answer: OrderAnswer, seconds: float, last: str) -> bool:
        until = time.monotonic() + seconds
        while True:
            try:
                line = child.hear(until - time.monotonic())
            except TimeoutError:
                answer.failed, answer.hung = f"nothing was heard within {seconds:.0f} s", True
                break
            if line is None:
                how, complaint = child.last_words()
                answer.failed = f"its process {how}: {complaint[:300] or 'it said nothing'}"
                break
            try:
                event = json.loads(line)
                name = event["event"]
            except (ValueError, KeyError, TypeError):
                # output of a library
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
