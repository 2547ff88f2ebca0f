"""The error file that torchrun keeps for each rank (TORCHELASTIC_ERROR_FILE), as the lines of a log."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from gpudoc.facts.readers.clean import Data

# a traceback of a thousand frames is smaller than that; the keys of the file are in this order
_MOST_BYTES, _HEAD, _KEY = 4 << 20, b'{"message"', b'"py_callstack"'
_LAST_SECOND = 1 << 33


def is_error_file(head: bytes) -> bool:
    """Whether a file with this beginning may be an error file."""
    return head.lstrip().startswith(_HEAD)


def read_error_file(data: Data) -> bytes | None:
    """The lines of the rank's failure: its time in UTC, and its traceback; None for anything else.

    Written by torch.distributed.elastic.multiprocessing.errors.ErrorHandler.
    """
    if len(data) > _MOST_BYTES or not is_error_file(data[:64]) or _KEY not in data[:]:
        return None
    try:
        message = json.loads(data[:])["message"]
        more = message["extraInfo"]
        stack, summary = more["py_callstack"], message.get("message", "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not isinstance(stack, str) or not isinstance(summary, str):
        return None
    lines = [_when(more.get("timestamp")), stack.rstrip("\n")]
    if summary not in stack:
        lines.append(summary)
    return ("\n".join(line for line in lines if line) + "\n").encode("utf-8", "replace")


def _when(stamp: object) -> str:
    if not isinstance(stamp, str) or not (stamp.isascii() and stamp.isdecimal()) or len(stamp) > len(str(_LAST_SECOND)):
        return ""
    seconds = int(stamp)
    if seconds > _LAST_SECOND:
        return ""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S} UTC: the rank failed"
