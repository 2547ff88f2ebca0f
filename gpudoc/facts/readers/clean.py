"""Bytes of any encoding and size -> numbered, cleaned lines, limited in number, with all lines that name a fault."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from itertools import chain
from typing import Union

from gpudoc.errors import GpudocError
from gpudoc.facts.readers.large_file import LargeFile
from gpudoc.facts.readers.model import Line
from gpudoc.facts.redact import place_to_cut
from gpudoc.frozen import dataclass
from gpudoc.patterns import Pattern

# the bytes of an input, or a large file that is read in pieces
Data = Union[bytes, LargeFile]
# a text up to this size is read in full; of a larger one, the head, the tail and the surroundings of fault words
FULL_BYTES = 600_000
_HEAD_BYTES = 150_000
_TAIL_BYTES = 250_000
_HIT_BEFORE, _HIT_AFTER = 400, 1_200
_HITS_PER_WORD = 10
# how much after the head and before the tail of a very large text is searched for those words
_SEARCHED_BYTES, _COUNTED_BYTES = 128 << 20, 16 << 20
# nvidia-bug-report.sh writes sections under a rule; many of them copy configuration and do not show the present state
_BUG_REPORT = b"nvidia-bug-report.sh Version"
_RULE = "____________________________________________"
_TOLD_SECTION = Pattern(
    r"(?i)dmesg|journalctl|/var/log/(?:messages|syslog|kern|fabricmanager|nvidia-installer)|kern\.log|"
    r"nvidia-smi|nvlink|/proc/driver/nvidia/\S*version|bug report log file"
)
# this many from each end are kept of lines that differ only in numbers, such as the thousands in a training log
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
    "SXid",
    "fallen off the bus",
    "| Fail",
    '"Fail"',
)
# a line of a report's own structure, as in `nvidia-smi -q`, multi-line JSON and DCGM's tables: each of them counts,
# however many of them are equal
_STRUCTURE = Pattern(
    r"^\s*(?:[A-Z][\w .()/-]{0,45}?\s{2,}:\s|\"[\w /-]{1,45}\"\s*:\s|[\[\]{}]+,?\s*$|GPU [0-9A-F]{8}:)|"
    r"^\s{4,}[A-Z][A-Za-z ()/.]{2,40}\s*$|"
    r"^\W{0,3}\|[^|]{0,40}\|[^|]{0,80}\|\s*$"
)
_LONGEST_LINE = 2_000
# how far to look for the end of a line at either end of a part of a large text
_LINE_BYTES = 4_000
_DIGITS = Pattern(r"\d+(?:\.\d+)?")

_ANSI = Pattern(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])|\x9b[0-?]*[ -/]*[@-~]")
_BARE_ANSI = Pattern(r"\x1b?\[(?:\d{1,2}(?:;\d{1,3})*)?m")
_QUOTE = Pattern(r"^(?:\s{0,3}>(?!>>)\s?)+")
_FENCE = Pattern(r"^\s*(?:```+|~~~+)\s*[\w+-]*\s*$|^\s*</?(?:details|summary|pre|code|br|p)/?>\s*$")
# Markdown marks around a line, or around several lines of which this is the first or last
_RUNS = {"`": Pattern(r"`+"), "**": Pattern(r"(?<!\*)\*\*(?=[^\s*])|(?<=[^\s*])\*\*(?!\*)")}
_BREAK = Pattern(r"<br ?/?>")
_TAG = Pattern(r"</?(?:details|summary|pre|code|br|p|b|strong)\s*/?>")
_CONTROL = Pattern(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
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
    """A run of input bytes and the number of the line in which it begins."""

    data: bytes
    first_line: int


def clean(data: Data, source: str = "", *, name: str = "the input") -> tuple[Line, ...]:
    """The cleaned lines of `data`; GpudocError if it is empty or is not text."""
    encoding = encoding_of(data, name)
    lines: list[Line] = []
    for piece in _pieces(data, encoding):
        text = piece.data.decode(encoding, errors="replace")
        for number, raw in enumerate(text.split("\n"), start=piece.first_line):
            lines += [Line(number, part, source) for part in clean_line(raw)]
    if not any(line.text.strip() for line in lines):
        raise GpudocError(f"{name} is empty", hint="pass a report or a log that contains text")
    return tuple(_thinned(lines))


def head_of(data: Data, *, name: str = "the input") -> str:
    """The uncleaned beginning of `data`, including fences, from which to recognise the kind of text."""
    return data[:_HEAD_BYTES].decode(encoding_of(data, name), errors="replace").replace("\r\n", "\n")


def _thinned(lines: list[Line]) -> list[Line]:
    """The lines without the middle ones of each kind; if they are still too long, their beginning and end.

    A report's own rows are kept.
    """
    if len(lines) > _FEW_LINES:
        shapes = [_DIGITS.sub("#", line.text)[:160] for line in lines]
        kept = _from_one_end(shapes) | {len(shapes) - 1 - i for i in _from_one_end(shapes[::-1])}
        lines = [line for place, line in enumerate(lines) if place in kept or _STRUCTURE.match(line.text)]
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
    return lines[:front] + _of_middle(lines[front:back]) + lines[back:]


def _of_middle(lines: list[Line]) -> list[Line]:
    """Those of the middle lines that name a fault, and a report's own rows while there is room."""
    kept, room = [], _MOST_CHARACTERS
    for line in lines:
        row = room > 0 and _STRUCTURE.match(line.text) is not None
        room -= len(line.text) if row else 0
        if row or _telling(line.text):
            kept.append(line)
    return kept


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


def encoding_of(data: Data, name: str) -> str:
    """The encoding of a text, judged by its beginning; GpudocError if it is empty or binary."""
    head = data[:20_000]
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16-le" if head.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    if not head.strip(b"\0 \t\r\n") and not data[-len(head) :].strip(b"\0 \t\r\n"):
        raise GpudocError(f"{name} is empty", hint="pass a report or a log that contains text")
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if max(even, odd) > 0.3 * len(head) / 2 and min(even, odd) < 0.05 * len(head) / 2:
        return "utf-16-le" if odd > even else "utf-16-be"
    if head.isascii() and len(data) > len(head):
        # a note that somebody wrote below a log shows the encoding of both
        head += data[-len(head) :].partition(b"\n")[2]
    encoding = "utf-8" if _is_utf8(head) or _mostly_utf8(head) else _eight_bit(head)
    text = head.decode(encoding, errors="replace")
    strange = sum(1 for c in text if (c < " " and c not in "\t\n\r\x1b\x00\x08\x0c") or c == "\ufffd")
    if strange > 0.1 * len(text) or (head.count(0) > 0.2 * len(head)):
        raise GpudocError(
            f"{name} is a binary file, not text", hint="pass the log as text, or the output of a command: ... > out.txt"
        )
    return encoding


def _is_utf8(head: bytes) -> bool:
    """Whether all bytes are UTF-8; a character cut off at the end does not indicate another encoding."""
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _eight_bit(head: bytes) -> str:
    from gpudoc.facts.readers.eight_bit import encoding_of

    return encoding_of(head)


def _mostly_utf8(head: bytes) -> bool:
    text = head.decode("utf-8", errors="replace")
    broken = text.count("\ufffd")
    beyond = sum(1 for c in text if c > "\x7f") - broken
    return beyond > 2 * broken


def _pieces(data: Data, encoding: str) -> Iterator[_Piece]:
    newline = "\n".encode(encoding)
    spans: list[tuple[int, int]] = []
    for begin, end in _sections(data, encoding):
        spans += _sampled(data, encoding, begin, end)
    number, counted = 1, 0
    for begin, end in _joined(spans, len(newline)):
        number += _count(data, newline, counted, begin)
        counted = begin
        yield _Piece(data[begin:end], number)


def _sections(data: Data, encoding: str) -> list[tuple[int, int]]:
    """The span of the whole text, or of the sections of NVIDIA's bug report that show a state, without copied files."""
    if _BUG_REPORT not in data[:_HEAD_BYTES]:
        return [(0, len(data))]
    rule = (_RULE + "\n").encode(encoding)
    sections, begin = [], 0
    while begin < len(data):
        end = data.find(rule, begin)
        end = len(data) if end < 0 else end
        title = data[begin : begin + 300].decode(encoding, errors="replace").strip().split("\n")[0]
        if _TOLD_SECTION.search(title):
            sections.append((begin, end))
        begin = end + len(rule)
    return sections or [(0, len(data))]


def _to_line_ends(data: Data, encoding: str, span: tuple[int, int], within: tuple[int, int]) -> tuple[int, int]:
    """The span extended to whole lines at both ends; in a very long line, to a place where no secret is cut."""
    newline = "\n".encode(encoding)
    (begin, end), (first, last) = span, within
    if begin > first:
        before = data.rfind(newline, max(first, begin - _LINE_BYTES), begin)
        begin = before + len(newline) if before >= 0 else _uncut(data, begin)
    if end < last:
        after = data.find(newline, end, min(last, end + _LINE_BYTES))
        end = after if after >= 0 else _uncut(data, end)
    return begin, max(begin, end)


def _uncut(data: Data, place: int) -> int:
    begin = max(0, place - _LINE_BYTES)
    # one character per byte: the words that reveal a secret are ASCII
    return begin + place_to_cut(data[begin : place + _LINE_BYTES].decode("latin-1"), place - begin)


def _sampled(data: Data, encoding: str, begin: int, end: int) -> list[tuple[int, int]]:
    """The spans to read of a part: all of it, or its head, its tail and the surroundings of words that name a fault."""
    if end - begin <= FULL_BYTES:
        return [(begin, end)]
    head, tail = begin + _HEAD_BYTES, end - _TAIL_BYTES
    spans = [(begin, head), (tail, end)]
    # in a very large text the words are searched only near both ends
    near = [(head, tail)] if end - begin <= 2 * _SEARCHED_BYTES else [
        (head, head + _SEARCHED_BYTES), (tail - _SEARCHED_BYTES, tail)
    ]  # fmt: skip
    for first, last in near:
        for word in _TELLING:
            spans += _spans_around(data, word.encode(encoding), first, last)
    return [_to_line_ends(data, encoding, span, (begin, end)) for span in spans]


def _count(data: Data, newline: bytes, begin: int, end: int) -> int:
    """The number of line ends between two offsets, counted piece by piece: a mapped file has no `count`."""
    return sum(data[at : min(at + _COUNTED_BYTES, end)].count(newline) for at in range(begin, end, _COUNTED_BYTES))


def _spans_around(data: Data, word: bytes, begin: int, end: int) -> list[tuple[int, int]]:
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


def clean_line(raw: str) -> list[str]:
    """A line without colours, marks and control characters, in parts if a progress bar rewrote it or it is long."""
    if not raw or raw.isspace():
        return []
    text = raw
    if "\x1b" in text or "\x9b" in text or "[0m" in text or "[3" in text:
        text = _BARE_ANSI.sub("", _ANSI.sub("", text))
    if not text.isascii():
        text = _repaired(text).translate(_PLAIN)
    if "&" in text and _ENTITY.search(text):
        import html

        # a second time for text that was escaped twice
        text = html.unescape(html.unescape(text))
    parts = []
    for shown in chain.from_iterable(map(_split, _BREAK.split(text))) if "<br" in text else _split(text):
        part = shown.rstrip() if shown.isprintable() else _CONTROL.sub("", shown).rstrip()
        part = _QUOTE.sub("", part)
        if "<" in part:
            part = _TAG.sub(" ", part).rstrip()
        if "`" in part or part.endswith("**"):
            part = _unmarked(part)
        if part.strip() and not _FENCE.match(part):
            parts.append(part)
    return parts


def _unmarked(line: str) -> str:
    """The line without marks that begin or end a piece of code on it; a pair within the line stays."""
    if _FENCE.match(line):
        return line
    for mark in ("`", "**"):
        runs = [run.span() for run in _RUNS[mark].finditer(line)]
        if not runs or (len(runs) > 2 and len(runs) % 2 == 0):
            continue
        begins, ends = not line[: runs[0][0]].strip(), runs[-1][1] == len(line)
        if len(runs) == 2 and not (begins and ends):
            continue
        if ends and (len(runs) == 2 or runs[-1][0] > 0):
            line = line[: runs[-1][0]].rstrip()
        if begins and (len(runs) == 2 or mark == "`"):
            line = line[: runs[0][0]] + line[runs[0][1] :]
    return line


def _split(text: str) -> Iterator[str]:
    # a progress bar rewrites its line with carriage returns: its first and last states are enough
    shown = [part for part in text.split("\r") if part.strip()]
    if len(shown) > 6:
        shown = [*shown[:2], *shown[-4:]]
    for part in shown:
        escaped = len(part) > 200 and part.count("\\n") >= 3
        for piece in part.replace("\\t", " ").split("\\n") if escaped else (part,):
            if len(piece) <= _LONGEST_LINE:
                yield piece
            else:
                yield from _pieces_of(piece)


def _pieces_of(line: str) -> Iterator[str]:
    """A long line in pieces; no secret is cut, because half a secret would not be recognised and would be shown."""
    while len(line) > _LONGEST_LINE:
        end = place_to_cut(line, _LONGEST_LINE) or _LONGEST_LINE
        yield line[:end]
        line = line[end:]
    yield line


def _repaired(text: str) -> str:
    """The text, repaired if possible where UTF-8 was read as cp1252 and saved again."""
    if not _MOJIBAKE.search(text):
        return text
    try:
        return text.encode("cp1252").decode("utf-8")
    except UnicodeError:
        return text.replace("â€˜", "'").replace("â€™", "'").replace("â€œ", '"').replace("â€", '"')
