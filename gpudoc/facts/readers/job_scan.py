"""One log of a job, read as a stream: the lines that show an end, and how far each rank had come around them.

A log of any size takes the memory of one block. One search covers the words of all rows; only lines that contain such a
word, and a window before them, are read one by one.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from gpudoc.facts.readers.clean import clean_line, encoding_of
from gpudoc.facts.readers.job_files import MOST_RANKS, JobFile
from gpudoc.facts.readers.job_log import EndLine, RankSign
from gpudoc.facts.readers.large_file import blocks
from gpudoc.facts.readers.rank_lines import NOBODY, Speaker, read_speaker, read_step, read_time
from gpudoc.facts.redact import place_to_cut
from gpudoc.patterns import Match, Pattern, Scan

_BLOCK = 2 << 20
_LONGEST_LINE, _LONGEST_TEXT = 4_000, 400
# if too many lines of a log show an end, this much of the log's end is still read
_TAIL_BYTES = 64 << 10
# this many first and last signs of a rank are kept for each row, and this many steps
_FEW, _MOST_STEPS = 3, 12
_WINDOWS = 8
_ENQUEUED = Pattern(r"last enqueued NCCL work: (\d{1,12})|SeqNum=(\d{1,12})")
_MEMBER = Pattern(r"^\s{0,12}(time|host|rank|exitcode) {1,6}: (-?[\w.:-]{1,80})(?: \(local_rank: (\d{1,5})\))?")
_SIGNALS = {"Killed": -9, "SIGKILL": -9, "Out Of Memory": -9, "Terminated": -15, "SIGTERM": -15, "Aborted": -6,
            "SIGABRT": -6, "Segmentation fault": -11, "SIGSEGV": -11, "Bus error": -7, "SIGBUS": -7,
            "Floating point exception": -8, "SIGFPE": -8, "Illegal instruction": -4, "SIGILL": -4}  # fmt: skip

# how often lines of one file may name a rank: enough for two lines like "tasks 0-65535" of the largest possible job
_MOST_NAMED = 2 * MOST_RANKS
# the row for torchrun's heading above the entry of the rank that it saw fail first
ROOT = "torchrun-root"
# the writer of a line, as far as the file says: the rank, else the local rank on a node
Key = tuple[str, int, int]
NOBODY_KEY: Key = ("", 0, 0)
# a local rank that occurs on several nodes of one file
AMBIGUOUS = -1


@dataclass(slots=True)
class Stream:
    """What one writer of a file wrote in one attempt, collected while reading."""

    host: str = ""
    signs: dict[str, list[EndLine]] = field(default_factory=dict)
    last_step: int | None = None
    last_step_at: int = -1
    # (offset, step) of the first mention of each of the newest steps
    marks: list[tuple[int, int]] = field(default_factory=list)
    steps: dict[int, float] = field(default_factory=dict)
    enqueued: int | None = None
    began: float | None = None
    ended: float | None = None
    wrote: bool = False

    def add(self, sign: EndLine) -> None:
        """Keep the sign; if there are many of one row, keep the first and the last ones."""
        alike = self.signs.setdefault(sign.row.id, [])
        if len(alike) == 2 * _FEW:
            del alike[_FEW]
        alike.append(sign)

    def tell(self, time: float | None, step: int | None, offset: int) -> None:
        """Take the time and the step of a line."""
        self.wrote = True
        if time is not None:
            self.began = time if self.began is None else self.began
            self.ended = time
        if step is None:
            return
        if self.last_step is None or step > self.last_step:
            self.marks = [*self.marks[1 - _MOST_STEPS :], (offset, step)]
        self.last_step, self.last_step_at = step, offset
        if time is not None:
            if len(self.steps) >= _MOST_STEPS and step not in self.steps:
                del self.steps[sorted(self.steps)[_MOST_STEPS // 2]]
            self.steps[step] = time


class SignWords:
    """The rows, with one expression for all their words."""

    def __init__(self, rows: Sequence[RankSign]) -> None:
        words = sorted({word for row in rows for word in row.words})
        self._rows = tuple((row, tuple(row.words), Pattern(row.pattern) if row.pattern else None) for row in rows)
        self.words = Scan("|".join(_escaped(word) for word in words))

    def find(self, line: str, text: str) -> tuple[RankSign, Match[str] | None] | None:
        """The first row that the line matches; `text` is the line without its rank prefix."""
        for row, words, pattern in self._rows:
            for word in words:
                if word in line:
                    break
            else:
                continue
            found = None
            if pattern is not None:
                found = pattern.search(text) or pattern.search(line)
                if found is None:
                    continue
            return row, found
        return None


def _escaped(word: str) -> str:
    return "".join(sign if sign.isalnum() or sign in " _" else "\\" + sign for sign in word)


def whole_lines(file: JobFile) -> Iterator[bytes]:
    """A log in pieces of whole lines, as UTF-8; raises OSError, or GpudocError if the file is empty or not text."""
    decode = None
    rest, is_first = b"", True
    for piece in blocks(file.open(), _BLOCK):
        if is_first:
            encoding, is_first = encoding_of(piece, file.name), False
            if encoding != "utf-8":
                decode = codecs.getincrementaldecoder(encoding)("replace")
        if decode is not None:
            piece = decode.decode(piece).encode("utf-8")
        rest += piece
        end = rest.rfind(b"\n") + 1
        if end or len(rest) > _BLOCK:
            end = end or len(rest)
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


class FileScan:
    """One file while it is read: a stream for each writer and attempt."""

    def __init__(self, file: JobFile, words: SignWords, window: int, most_hits: int) -> None:
        """`window`: how many bytes before a line that shows an end, and at either end of the file, are read in full.

        `most_hits`: how many lines that may show an end are read; after that, only the end of the file is.
        """
        self.file = file
        self.streams: dict[tuple[int, Key], Stream] = {}
        self.pairs: dict[tuple[int, int], int] = {}
        self.says_ranks = False
        self._words, self._window, self._most_hits = words, window, most_hits
        self._attempt, self._line, self._seen, self._hits = 0, 1, 0, 0
        self._room = _WINDOWS * window
        self._closed: set[Key] = set()
        self._entry: dict[str, str] = {}
        self._is_root = False
        self._nameable = _MOST_NAMED

    def read(self) -> None:
        """Read the whole file; OSError if it cannot be read."""
        last, begin, line = b"", 0, 1
        for block in whole_lines(self.file):
            begin += len(last)
            line = self._line
            self._search(block, begin, 0)
            last = block
        if self._hits >= self._most_hits:
            end = last.find(b"\n", max(len(last) - _TAIL_BYTES, self._seen - begin, 0)) + 1
            self._line, self._most_hits = line + last.count(b"\n", 0, end), self._hits + _TAIL_BYTES
            self._search(last, begin, end)
        self._room = max(self._room, 1)
        self._before(last, begin, len(last))

    def _search(self, block: bytes, begin: int, place: int) -> None:
        """Search a block from `place` on for lines that show an end; after `most_hits` of them, only count lines."""
        counted = place
        while self._hits < self._most_hits and (span := self._words.words.search(block, place)) is not None:
            start = block.rfind(b"\n", 0, span[0]) + 1
            end = block.find(b"\n", span[0])
            end = len(block) if end < 0 else end
            self._line += block.count(b"\n", counted, start)
            counted = start
            self._before(block, begin, start)
            self._hits += 1
            self._hit(block[start : min(end, start + _LONGEST_LINE)], begin + start)
            self._seen = max(self._seen, begin + end)
            place = end
        self._line += block.count(b"\n", counted)
        if begin == 0 and not self._seen:
            self._before(block, 0, min(len(block), block.find(b"\n", self._window) + 1 or len(block)))

    def _before(self, block: bytes, begin: int, end: int) -> None:
        """Read the window right before a place in a block, and at first the file's beginning."""
        if begin == 0 and not self._seen:
            head = end if end <= self._window else block.rfind(b"\n", 0, self._window) + 1
            self._tell(block[:head], 0)
        first = max(self._seen - begin, 0)
        if end - first > self._window:
            first = block.find(b"\n", end - self._window, end) + 1
        if first < end and self._room > 0:
            self._room -= end - first
            self._tell(block[first:end], begin + first)

    def _tell(self, piece: bytes, begin: int) -> None:
        """Take the writer, time and step from each line of a piece."""
        self._seen = max(self._seen, begin + len(piece))
        for raw in piece.split(b"\n"):
            if raw:
                text = raw[:_LONGEST_LINE].decode("utf-8", "replace")
                speaker, said = read_speaker(text)
                step = read_step(said)
                if step is not None and self._closed and self._begins_again(speaker, step):
                    self._begin()
                stream = self._stream(speaker)
                stream.tell(read_time(text, stream.ended), step, begin)
            begin += len(raw) + 1

    def _begins_again(self, speaker: Speaker, step: int) -> bool:
        """Whether a rank whose end was reported is at an earlier step."""
        stream = self._stream(speaker)
        return stream.last_step is not None and step < stream.last_step

    def _begin(self) -> None:
        if any(stream.signs for (attempt, _), stream in self.streams.items() if attempt == self._attempt):
            self._attempt += 1
        self._closed.clear()

    def _stream(self, speaker: Speaker) -> Stream:
        key = key_of(speaker)
        if speaker.rank is not None:
            self.says_ranks = True
            if speaker.local is not None:
                place = speaker.node, speaker.local
                known = self.pairs.setdefault(place, speaker.rank)
                self.pairs[place] = speaker.rank if known == speaker.rank else AMBIGUOUS
        stream = self.streams.get((self._attempt, key))
        if stream is None:
            stream = self.streams[self._attempt, key] = Stream()
        if speaker.host and not stream.host:
            stream.host = speaker.host
        return stream

    def _hit(self, raw: bytes, offset: int) -> None:
        for part in clean_line(raw.decode("utf-8", "replace")):
            speaker, text = read_speaker(part) if part else (NOBODY, "")
            found = self._words.find(part, text)
            if found is None:
                continue
            row, match = found
            if row.role == "member":
                self._member(row, part, offset)
            elif row.role == "begin":
                self._begin()
            elif row.role in ("exit", "named", "node"):
                self._about(row, match, part, offset)
            else:
                self._own(row, speaker, part, offset)

    def _own(self, row: RankSign, speaker: Speaker, part: str, offset: int) -> None:
        if self._closed and row.role != "stop" and key_of(speaker) in self._closed and speaker != NOBODY:
            self._begin()
        stream = self._stream(speaker)
        told = [int(one) for found in _ENQUEUED.findall(part) for one in found if one]
        if told and row.role == "followed":
            stream.enqueued = max(told)
        time = read_time(part, stream.ended)
        stream.tell(time, None, offset)
        stream.add(self._sign(row, part, offset, speaker.rank, time if time is not None else stream.ended))

    def _about(self, row: RankSign, match: Match[str] | None, part: str, offset: int) -> None:
        """Keep what a line says about the rank or ranks that it names."""
        told = match.groupdict() if match is not None else {}
        code = int(told["code"]) if told.get("code") else _SIGNALS.get(told.get("signal") or "")
        code = 128 - code if code is not None and 128 < code < 160 else code
        sign = replace(self._sign(row, part, offset, None, read_time(part)), code=code, host=told.get("host") or "")
        if told.get("local") is not None:
            key: Key = ("local", 0, int(told["local"] or 0))
            self._closed.add(key)
            if (0, key[2]) in self.pairs:
                self._closed.add(("rank", 0, self.pairs[0, key[2]]))
            self._keep(key, sign)
            return
        first = told.get("rank") or told.get("first")
        if first is None:
            self._keep(NOBODY_KEY, sign)
            return
        ranks = range(int(first), int(told.get("last") or first) + 1)
        self._nameable -= len(ranks)
        if self._nameable < 0:
            self._keep(NOBODY_KEY, sign)
            return
        for rank in ranks:
            self._keep(("rank", 0, rank), replace(sign, rank=rank))

    def _keep(self, key: Key, sign: EndLine) -> None:
        stream = self.streams.setdefault((self._attempt, key), Stream())
        stream.host = stream.host or sign.host
        stream.add(sign)

    def _member(self, row: RankSign, part: str, offset: int) -> None:
        """Take a line of torchrun's summary, whose entries end with the exit code."""
        found = _MEMBER.match(read_speaker(part)[1])
        if found is None:
            self._is_root |= row.id == ROOT
            return
        self._entry[found[1]] = found[2]
        if found[3] and self._is_root and found[2].isdecimal():
            self._name(int(found[3]), int(found[2]))
        if found[1] != "exitcode" or not self._entry.get("rank", "").isdecimal():
            return
        entry, self._entry = self._entry, {}
        code = entry["exitcode"]
        if code.removeprefix("-").isdecimal():
            sign = self._sign(replace(row, role="exit"), part, offset, int(entry["rank"]), None)
            host = "" if entry.get("host") == "localhost" else entry.get("host", "")
            self._keep(("rank", 0, int(entry["rank"])), replace(sign, code=int(code), first=self._is_root, host=host))
        self._is_root = False

    def _name(self, local: int, rank: int) -> None:
        """Move to the rank the signs that the launcher's own line reported under its local rank."""
        place = self._attempt, ("local", 0, local)
        stream = self.streams.get(place)
        if stream is not None and not stream.wrote:
            del self.streams[place]
            for sign in (sign for signs in stream.signs.values() for sign in signs):
                self._keep(("rank", 0, rank), sign)

    def _sign(self, row: RankSign, part: str, offset: int, rank: int | None, time: float | None) -> EndLine:
        text = part if len(part) <= _LONGEST_TEXT else part[: place_to_cut(part, _LONGEST_TEXT) or _LONGEST_TEXT]
        return EndLine(
            row=row, rank=rank, host="", text=text, file=self.file, line=self._line, offset=offset, time=time
        )


def key_of(speaker: Speaker) -> Key:
    """The key of the stream that a line belongs to."""
    if speaker.rank is not None:
        return ("rank", 0, speaker.rank)
    return NOBODY_KEY if speaker.local is None else ("local", speaker.node, speaker.local)
