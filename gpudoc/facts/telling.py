"""How a probe in a child process reports facts: one JSON line each, written before it asks the next question."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

from gpudoc.facts.model import NOT_READ, Absent

STDOUT = 1


class Teller:
    """Writes to a file descriptor at once, so that nothing written before a hang or a crash is lost."""

    def __init__(self, descriptor: int = STDOUT) -> None:
        self._descriptor = descriptor

    def begin(self, question: str) -> None:
        """Report the next question; if no answer follows, this question hangs."""
        self._write({"begin": question})

    def fact(self, path: str, value: object) -> None:
        """Report one fact at `path` ('driver.nvml_code', 'gpus.0.name') of a Machine."""
        self._write({"fact": path.split("."), "value": plain(value)})

    def facts(self, section: str, part: object) -> None:
        """Report each field of `part` that was read, one by one, because several probes fill one section."""
        for name, value in plain_fields(part).items():
            self._write({"fact": [section, name], "value": value})

    def group(self, number: int) -> None:
        """Report the process group to kill when the deadline has passed."""
        self._write({"group": number})

    def died(self, how: str) -> None:
        """Report the end of a worker that could not report `end` itself."""
        self._write({"died": how})

    def end(self) -> None:
        """Report that all facts are written; anything that the process does later is ignored."""
        self._write({"end": True})

    def _write(self, line: object) -> None:
        data = (json.dumps(line) + "\n").encode()
        while data:
            data = data[os.write(self._descriptor, data) :]


def plain(value: object) -> object:
    """`value` as JSON values, with an absent fact as {"absent": reason}, and without fields that were never read."""
    if isinstance(value, Absent):
        return {"absent": value.reason}
    if is_dataclass(value):
        return plain_fields(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def plain_fields(part: object) -> dict[str, object]:
    """The fields of a facts dataclass as JSON values, without those that were never read."""
    assert is_dataclass(part)
    values = ((field.name, getattr(part, field.name)) for field in fields(part))
    return {name: plain(value) for name, value in values if value != NOT_READ}
