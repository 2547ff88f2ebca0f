"""A key that all processes of one run get from their launcher's environment, and messages that are signed with it."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping

# in the environment and never on a command line, which every user of a machine can read
KEY = "GPUDOC_RUN_KEY"
# how a job file makes a key
NEW_KEY = "$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')"
_FEWEST_CHARACTERS = 16
_TAG_CHARACTERS = 2 * hashlib.sha256().digest_size


class SealError(ValueError):
    """A message that is not from a process with the key."""


class Seal:
    """Signs messages with the run's key, and opens those that are signed with it for the same purpose."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def sign(self, purpose: str, data: bytes) -> bytes:
        """The signature, which is text, followed by the data."""
        return self._tag(purpose, data) + data

    def open(self, purpose: str, signed: bytes) -> bytes:
        """The data if its signature is valid; else SealError."""
        tag, data = signed[:_TAG_CHARACTERS], signed[_TAG_CHARACTERS:]
        if not hmac.compare_digest(tag, self._tag(purpose, data)):
            raise SealError(f"{len(signed)} bytes that are not signed with the key of this run ({KEY})")
        return data

    def _tag(self, purpose: str, data: bytes) -> bytes:
        return hmac.digest(self._key, f"{len(purpose)} {purpose} ".encode() + data, "sha256").hex().encode()


def seal_here(environment: Mapping[str, str] | None = None) -> Seal | None:
    """The seal of this run; None if its launcher gave no key of 16 characters or more."""
    key = (os.environ if environment is None else environment).get(KEY, "").strip()
    return Seal(key) if len(key) >= _FEWEST_CHARACTERS else None
