"""The one error that reaches the user, and what each exit code means."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The meaning of every command's exit status; docs/commands.md prints the same table."""

    OK = 0
    BAD_ANSWER = 1
    NOT_DONE = 2
    FAULT = 70
    RESUME = 75
    INTERRUPTED = 130


class GpudocError(Exception):
    """Something the user can mend: `message` says what and where, `hint` what to type.

    After an abrupt one, the process ends at once, since cleaning up would wait for a lost device, or crash on it.
    """

    is_abrupt = False

    def __init__(self, message: str, *, hint: str = "", exit_code: ExitCode = ExitCode.NOT_DONE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
