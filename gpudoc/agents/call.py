"""One call of gpudoc's own command line in a separate process, so that it can be stopped with all its children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from gpudoc.process.arguments import own_python
from gpudoc.process.ending import end_family

# more than enough time for a command to end its own children
_GRACE_S = 5.0
_MOST_BYTES = 16_000_000
_CALL = """\
from gpudoc.process.lifetime import die_with_parent
from signal import SIGINT
die_with_parent({parent}, SIGINT)
from gpudoc.cli.app import main
main()"""


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """A command's output as its document; `failed` if it is a gpudoc.error.v1 or not a document at all."""

    document: dict[str, object]
    exit_code: int
    failed: bool


class Call:
    """A running command; `stop` ends it and all its descendants, from any thread."""

    def __init__(self, arguments: Sequence[str], text: str = "") -> None:
        # files instead of pipes: no thread has to write while the command reads, and stopping is simple
        self._given, self._said = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  as long as it runs
        self._given.write(text.encode("utf-8", "surrogateescape"))
        self._given.seek(0)
        command = [*own_python(_CALL.format(parent=os.getpid())), *arguments]
        self._process = subprocess.Popen(
            command, stdin=self._given, stdout=self._said, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def wait(self, seconds: float) -> bool:
        """Whether the command has ended, after at most that many seconds."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is not None

    def stop(self) -> None:
        """Interrupt the command, and end any of its processes that remain."""
        end_family(self._process, ask=signal.SIGINT, grace_s=_GRACE_S)

    def answer(self) -> CommandAnswer:
        """The command's output, once it has ended."""
        self._said.seek(0)
        said = self._said.read(_MOST_BYTES)
        try:
            document = json.loads(said)
        except ValueError:
            words = f"gpudoc ended with exit code {self._process.returncode} and returned no document"
            document = {"schema": "gpudoc.error.v1", "message": words, "hint": "run it in a terminal"}
        failed = document.get("schema") == "gpudoc.error.v1"
        return CommandAnswer(document, self._process.returncode or 0, failed)
