"""A short look at one training process at a high rate: a step of a few milliseconds is not seen at 20 Hz."""

from __future__ import annotations

import dataclasses
import pathlib

from gpudoc.facts.live import spy
from gpudoc.facts.model import Absent, Fact
from gpudoc.facts.process import Stacks
from gpudoc.process.ending import end_process

# fine enough for steps of some milliseconds, and short, since sampling at this rate takes CPU time
RATE_HZ = 200.0
SECONDS = 2
FINISH_S = 5.0


class CloseUp(spy.Recorder):
    """A py-spy that samples one process for two seconds in the background."""

    def __init__(self, program: str, pid: int, folder: pathlib.Path) -> None:
        super().__init__(program, pid, folder / "close-up.json", SECONDS, RATE_HZ)

    def finish(self) -> Fact[Stacks]:
        """The stacks with the rate that was reached; absent with the reason when py-spy saw nothing."""
        end_process(self._process, grace_s=FINISH_S)
        seen = spy.read_recording(self._pid, self.output, self._messages)
        if isinstance(seen, Absent):
            return seen
        most = max((len(t.samples) for t in seen.threads if t.is_main), default=0)
        return dataclasses.replace(seen, rate_hz=most / SECONDS) if most else Absent("the main thread was not seen")
