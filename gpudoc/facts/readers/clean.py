"""Bytes of any encoding and size -> numbered, cleaned lines, bounded in number, keeping what names a fault."""

from __future__ import annotations

import codecs
import html
from collections.abc import Iterator
from dataclasses import dataclass

from gpudoc.errors import GpudocError
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Line

# what is read in full; of more, the head, the tail and the surroundings of words that name a fault
FULL_BYTES = 600_000
_HEAD_BYTES = 150_000
_TAIL_BYTES = 250_000
_HIT_BEFORE, _HIT_AFTER = 400, 1_200
_HITS_PER_WORD = 10
# of lines that differ in numbers only, as a training log has by the thousand, so many from each end are kept
_ALIKE = 8
_FEW_LINES = 400
_MOST_CHARACTERS = 200_000
_TELLING = (
    "Traceback (most",
    "Error: ",
    "Xid (",
    "CUDA error",
    "out of memory",
    "Killed process",
    "PyTorch version",
    "Driver Version:",
)
_LONGEST_LINE = 2_000
_DIGITS = Pattern(r"\d+(?:\.\d+)?")

_ANSI = Pattern(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])|\x9b[0-?]*[ -/]*[@-~]")
_BARE_ANSI = Pattern(r"\x1b?\[(?:\d{1,2}(?:;\d{1,3})*)?m")
_QUOTE = Pattern(r"^(?:\s{0,3}>(?!>>)\s?)+")
_FENCE = Pattern(r"^\s*(?:```+|~~~+)\s*[\w+-]*\s*$|^\s*</?(?:details|summary|pre|code|br|p)/?>\s*$")
_TAG = Pattern(r"</?(?:details|summary|pre|code|br|p|b|strong)\s*/?>")
_CONTROL = Pattern(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\u200b\u200e\u200f]")
_ENTITY = Pattern(r"&(?:gt|lt|amp|quot|apos|nbsp|#\d{1,5}|#x[0-9a-fA-F]{1,5});")
_PLAIN = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u00a0": " ",
        "\u2028": " ",
        "\u2029": " ",
        "\u2013": "-",
        "\u2014": "-",
        "\u2502": "|",
        "\u00d7": "x",
    }
)
_MOJIBAKE = Pattern("â€|Ã[\u0080-\u00bf©¨¼¤¶]|â\u0094|â”")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run of bytes of the input and the number of the line it begins in."""

    data: bytes
    first_line: int


def clean(data: bytes, source: str = "", *, name: str = "the input") -> tuple[Line, ...]:
    """The cleaned lines of `data`; GpudocError when it is empty or not text at all."""
    encoding = _encoding(data, name)
    lines: list[Line] = []
    for piece in _pieces(data, encoding):
        text = piece.data.decode(encoding, errors="replace")
        for number, raw in enumerate(text.split("\n"), start=piece.first_line):
            lines += [Line(number, part, source) for part in _clean_line(raw)]
    if not any(line.text.strip() for line in lines):
        raise GpudocError(f"{name} is empty", hint="give a report or a log with text in it")
    return tuple(_thinned(lines))


def _thinned(lines: list[Line]) -> list[Line]:
    """The lines without the middle ones of each kind; of what is still too long the beginning and the end."""
    if len(lines) > _FEW_LINES:
        shapes = [_DIGITS.sub("#", line.text)[:160] for line in lines]
        kept = _from_one_end(shapes) | {len(shapes) - 1 - i for i in _from_one_end(shapes[::-1])}
        lines = [line for place, line in enumerate(lines) if place in kept]
    total = sum(len(line.text) for line in lines)
    if total <= _MOST_CHARACTERS:
        return lines
    front, room = 0, _MOST_CHARACTERS * 2 // 5
    while room > 0:
        room -= len(lines[front].text)
        front += 1
    back, room = len(lines), _MOST_CHARACTERS * 3 // 5
    while room > 0 and back > front:
        back -= 1
        room -= len(lines[back].text)
    return lines[:front] + [line for line in lines[front:back] if _telling(line.text)] + lines[back:]


def _from_one_end(shapes: list[str]) -> set[int]:
    counts: dict[str, int] = {}
    kept = set()
    for place, shape in enumerate(shapes):
        counts[shape] = counts.get(shape, 0) + 1
        if counts[shape] <= _ALIKE:
            kept.add(place)
    return kept


def _telling(text: str) -> bool:
    return any(word in text for word in _TELLING)


def _encoding(data: bytes, name: str) -> str:
    head = data[:20_000]
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16-le" if head.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    if not head.strip(b"\0 \t\r\n") and not data[-len(head) :].strip(b"\0 \t\r\n"):
        raise GpudocError(f"{name} is empty", hint="give a report or a log with text in it")
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if max(even, odd) > 0.3 * len(head) / 2 and min(even, odd) < 0.05 * len(head) / 2:
        return "utf-16-le" if odd > even else "utf-16-be"
    # strict decoding of a prefix may cut a character in two at its end: that alone is no sign of another encoding
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(head)
        encoding = "utf-8"
    except UnicodeDecodeError:
        encoding = "utf-8" if _mostly_utf8(head) else "cp1252"
    text = head.decode(encoding, errors="replace")
    strange = sum(1 for c in text if (c < " " and c not in "\t\n\r\x1b\x00\x08\x0c") or c == "\ufffd")
    if strange > 0.1 * len(text) or (head.count(0) > 0.2 * len(head)):
        raise GpudocError(
            f"{name} is a binary file, not text", hint="give the log as text, or the output of a command: ... > out.txt"
        )
    return encoding


def _mostly_utf8(head: bytes) -> bool:
    text = head.decode("utf-8", errors="replace")
    broken = text.count("\ufffd")
    beyond = sum(1 for c in text if c > "\x7f") - broken
    return beyond > 2 * broken


def _pieces(data: bytes, encoding: str) -> Iterator[_Piece]:
    if len(data) <= FULL_BYTES:
        yield _Piece(data, 1)
        return
    newline = "\n".encode(encoding)
    spans = [(0, _HEAD_BYTES), (len(data) - _TAIL_BYTES, len(data))]
    for word in _TELLING:
        spans += _spans_around(data, word.encode(encoding), _HEAD_BYTES, len(data) - _TAIL_BYTES)
    number, counted = 1, 0
    for begin, end in _joined(spans, len(newline)):
        number += data.count(newline, counted, begin)
        counted = begin
        yield _Piece(data[begin:end], number)


def _spans_around(data: bytes, word: bytes, begin: int, end: int) -> list[tuple[int, int]]:
    """Surroundings of the first and last places of `word` between two offsets."""
    places: list[int] = []
    place = data.find(word, begin, end)
    while place >= 0 and len(places) < _HITS_PER_WORD:
        places.append(place)
        place = data.find(word, place + _HIT_AFTER, end)
    if place >= 0:
        place = data.rfind(word, begin, end)
        for _ in range(_HITS_PER_WORD):
            places.append(place)
            place = data.rfind(word, begin, max(begin, place - _HIT_BEFORE))
            if place < 0:
                break
    return [(max(begin, p - _HIT_BEFORE), min(end, p + _HIT_AFTER)) for p in places]


def _joined(spans: list[tuple[int, int]], unit: int) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        begin -= begin % unit
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _clean_line(raw: str) -> list[str]:
    if not raw or raw.isspace():
        return []
    text = raw
    if "\x1b" in text or "\x9b" in text or "[0m" in text or "[3" in text:
        text = _BARE_ANSI.sub("", _ANSI.sub("", text))
    if not text.isascii():
        text = _repaired(text).translate(_PLAIN)
    if "&" in text and _ENTITY.search(text):
        text = html.unescape(text)
    parts = []
    for shown in _split(text):
        part = _CONTROL.sub("", shown).rstrip()
        part = _QUOTE.sub("", part)
        if "<" in part:
            part = _TAG.sub(" ", part).rstrip()
        if part.strip() and not _FENCE.match(part):
            parts.append(part)
    return parts


def _split(text: str) -> Iterator[str]:
    # a progress bar rewrites its line with carriage returns: what was shown first and last says enough
    shown = [part for part in text.split("\r") if part.strip()]
    if len(shown) > 6:
        shown = [*shown[:2], *shown[-4:]]
    for part in shown:
        escaped = len(part) > 200 and part.count("\\n") >= 3
        for piece in part.replace("\\t", " ").split("\\n") if escaped else (part,):
            if len(piece) <= _LONGEST_LINE:
                yield piece
            else:
                yield from (piece[i : i + _LONGEST_LINE] for i in range(0, len(piece), _LONGEST_LINE))


def _repaired(text: str) -> str:
    """UTF-8 that was read as cp1252 and saved again, made right where that is possible."""
    if not _MOJIBAKE.search(text):
        return text
    try:
        return text.encode("cp1252").decode("utf-8")
    except UnicodeError:
        return text.replace("â€˜", "'").replace("â€™", "'").replace("â€œ", '"').replace("â€", '"')
