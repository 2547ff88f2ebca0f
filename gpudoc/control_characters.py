"""Writes out characters that a terminal obeys or a reader cannot see, so that outside text is shown, not obeyed."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gpudoc.patterns import Match, Pattern

# C0, DEL and C1; characters that hide or reverse text; line ends of Unicode; half characters, which stand for bytes of
# file names that are not UTF-8; letters of the invisible alphabet
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff9-\ufffb\ud800-\udfff\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_IN_TEXT = Pattern(f"[{_HIDDEN}]")
_IN_LINE = Pattern(f"[\n{_HIDDEN}]")
# the bytes of a file name that are not UTF-8, as Python keeps them
_BYTES_FROM, _BYTES_TO = 0xDC80, 0xDCFF


def escape_controls(text: str) -> str:
    """`text` with every control character but line ends as '\\x1b' or '\\u202e', and a blank for each tab."""
    return _IN_TEXT.sub(_escape, text).replace("\t", " ")


def escape_line(text: object) -> str:
    """One line: as `escape_controls`, with line ends written out too."""
    said = str(text)
    # compiling the expression takes longer than writing most names
    if said.isascii() and said.isprintable():
        return said
    return _IN_LINE.sub(_escape, said).replace("\t", " ")


def to_json(document: Mapping[str, object], *, indent: int | None = 2, ascii_only: bool = False) -> str:
    """The document as JSON that is safe on a terminal: control characters in texts are escaped."""
    between = (",", ":") if indent is None else None
    written = json.dumps(document, indent=indent, ensure_ascii=ascii_only, separators=between)
    return _IN_TEXT.sub(_json_escape, written)


def _escape(match: Match[str]) -> str:
    code = ord(match[0])
    if _BYTES_FROM <= code <= _BYTES_TO:
        code -= 0xDC00
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _json_escape(match: Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if match[0] != "\x7f" else "\\u007f"
