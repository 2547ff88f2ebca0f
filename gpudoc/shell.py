"""Words of a command that a person may copy: in a strict form, or quoted so that a shell takes them literally."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from gpudoc.control_characters import escape_line
from gpudoc.patterns import ASCII, Pattern

_VERSION = Pattern(
    r"\d{1,5}(?:\.\d{1,8}){0,5}(?:\.?(?:a|b|rc|post|dev)\d{1,10}){0,3}(?:\+[a-z0-9]{1,20}(?:[._-][a-z0-9]{1,20}){0,5})?"
)
_PCI_ADDRESS = Pattern(r"(?i)(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_UUID = Pattern(r"(?i)(?:GPU-|MIG-)?(?:GPU-)?[0-9a-f]{1,8}(?:-[0-9a-f]{4}){0,3}(?:-[0-9a-f]{12})?(?:/\d{1,3}/\d{1,3})?")
_NAME = Pattern(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
# the characters that may replace a word of a row: a shell takes each of them literally
_PLAIN = Pattern(r"[\w.,:=/+@% -]*", ASCII)


def is_version(text: str) -> bool:
    """Whether it is a version as packages and drivers have them: '2.5.1+cu124', '570.86.15'."""
    return _VERSION.fullmatch(text) is not None


def is_pci_address(text: str) -> bool:
    """Whether it is an address of a PCI device, '0000:3b:00.0'."""
    return _PCI_ADDRESS.fullmatch(text) is not None


def is_uuid(text: str) -> bool:
    """Whether it is the UUID of a GPU or a part of one as NVML writes it."""
    return _UUID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether it is the name of a package, a host, a job or a container."""
    return _NAME.fullmatch(text) is not None


def is_plain(text: str) -> bool:
    """Whether a shell takes every character of it, blanks aside, as itself."""
    return _PLAIN.fullmatch(text) is not None


def quote(word: str) -> str:
    """One word, quoted; a control character in it as bash writes it: $'a\\x1b'."""
    if escape_line(word) == word:
        return shlex.quote(word)
    letters = (chr(byte) if 32 <= byte < 127 and byte not in b"\\'" else f"\\x{byte:02x}" for byte in os.fsencode(word))
    return f"$'{''.join(letters)}'"


def quote_path(path: Path | str) -> str:
    """A file name as one word, which no program takes for an option."""
    text = str(path)
    return quote(f"./{text}" if text.startswith("-") and text != "-" else text)
