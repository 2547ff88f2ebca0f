"""Python exceptions as people paste them: what was raised, where, in whose code, and which exception caused which.

One pass over the lines; the prefixes of the lines separate ranks whose output is interleaved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpudoc.facts.readers.model import unprefixed
from gpudoc.facts.readers.python_errors import (
    TITLE_LINES,
    CodeFrame,
    ErrorChain,
    Link,
    PythonError,
    Style,
    ended_by_title,
    quoted,
    read_frame,
)
from gpudoc.patterns import Match, Pattern

if TYPE_CHECKING:
    from gpudoc.facts.readers.model import CleanText, Line

_HEADER = "Traceback (most recent call last)"
_ORIGINAL = ("Original Traceback", "terminated with the following error", "Exception Group Traceback")
_HANDLING = "During handling of the above exception"
_DIRECT = "The above exception was the direct cause"
_FORWARD = "Traceback of forward call"
_USER_CODE = "from user code:"
_NAME = r"(?:[A-Za-z_]\w*\.){0,8}[A-Za-z_]\w*"
_ENDING = r"(?:Error|Exception|Interrupt|Exit|Failure|Failed|Unsupported|Violation|Violations|StopIteration)"
# library exceptions with lower-case names
_SMALL = r"(?:cv2|socket|zlib|struct|binascii|queue|_queue)\.\w+"
# the line that names the exception; within an open traceback any name is accepted
_RAISED = Pattern(rf"({_NAME})(?:: ?(.*))?$")
_RAISED_ALONE = Pattern(
    rf"(?:E {{2,8}})?((?:[A-Za-z_]\w*\.){{0,8}}(?:_?[A-Z]\w*)?{_ENDING}(?:Group)?|{_SMALL})(?:: ?(\S.*)|\s*:?)$"
)
# rich breaks a path where its box ends
_CUT_PATH = Pattern(r"(?:[~/]|[A-Z]:\\)[^\s:]*(?::\d*)?$(?<!\.py)")
_PYTEST_FRAME = Pattern(r"(\S+\.py):(\d+): ?(?:in (\S+)|([A-Z]\w*))?$")
_ARROW = Pattern(r"(?:-+>|\u2771) {0,5}(\d{1,7}) ?\|? ?(.*)$")
# the beginning of a log line, which never continues an exception's message
_LOGGED = Pattern(r"(?i)\W{0,2}(?:epoch|step|iter|batch|train|eval|val|info|warn|error|\d{1,4}[-:/%.])")
_CARETS = Pattern(r"[\s~^|.]+$")
_CAUGHT = Pattern(r"Caught (\w+) in ")
_RULE = Pattern(r"\+[-+]{3,80} ?\d{1,3} ?-{3}")
_MOST_MESSAGE, _WRAPPED_AT, _RAGGED, _MOST_CHAINS = 40, 40, 12, 400
_FEW_LINES, _SHORTEST_RULE = 25, 20
# where to split a traceback that was pasted as one line
_ONE_LINE = Pattern(rf" +(?=File \"[^\"]{{1,300}}\", line \d)| +(?=(?:\w{{1,40}}\.){{0,6}}[A-Z]\w{{0,60}}{_ENDING}: )")


def read(text: CleanText) -> tuple[ErrorChain, ...]:
    """Every chain of exceptions in the text, in the order of their first lines."""
    if not any(word in text.flat for word in ("Error", "Exception", "Traceback", 'File "', "----> ", "Unsupported")):
        return ()
    reader = _Reader(text.lines)
    for place, line in enumerate(text.lines):
        reader.feed(place, line)
    chains = reader.finish()
    if not chains and len(text.lines) <= _FEW_LINES:
        chains = quoted(text.lines)
    elif titled := quoted(text.lines[:TITLE_LINES]):
        chains = [ended_by_title(chain, titled[0].errors[0]) for chain in chains]
    return tuple(_joined(sorted(chains[:_MOST_CHAINS], key=lambda chain: chain.first)))


def _joined(chains: Sequence[ErrorChain]) -> list[ErrorChain]:
    """The chains without repeated titles: people often copy a traceback's last line above it, and may omit it below."""
    kept: list[ErrorChain] = []
    for chain in chains:
        title = kept[-1].errors[0] if kept and kept[-1].rank == chain.rank and len(kept[-1].errors) == 1 else None
        last = chain.errors[-1]
        if title is not None and not title.frames and last.frames and last.kind in ("", title.kind):
            if not last.message:
                last = replace(last, kind=title.kind, message=title.message, first=title.first, origin=title.origin)
                kept[-1] = replace(chain, errors=(*chain.errors[:-1], last))
                continue
            if last.message == title.message:
                kept[-1] = chain
                continue
        kept.append(chain)
    return kept


@dataclass(slots=True)
class _Draft:
    first: int
    link: Link
    style: Style = "plain"
    # the name that IPython writes before the frames, and again with the message after them
    announced: str = ""
    kind: str = ""
    message: list[str] = field(default_factory=list)
    frames: list[CodeFrame] = field(default_factory=list)
    forward: tuple[CodeFrame, ...] = ()
    last: int = 0
    origin: str = ""
    # whether frames may follow: always before the exception is named, afterwards only if a line announces them
    open: bool = True

    def ready(self) -> PythonError:
        return PythonError(
            kind=self.kind or self.announced,
            message="\n".join(self.message),
            frames=tuple(self.frames),
            forward=self.forward,
            link=self.link,
            origin=self.origin or (self.frames[-1].origin if self.frames else ""),
            first=self.first,
            last=self.last,
        )


class _Stream:
    """The lines of one rank: the chain that is being read, and what is already known of the next exception."""

    __slots__ = (
        "_chain",
        "_forward",
        "_link",
        "_located",
        "_longest",
        "_num_longest",
        "_opened",
        "_quoted",
        "chains",
        "rank",
    )

    def __init__(self, rank: str) -> None:
        self.rank = rank
        self.chains: list[ErrorChain] = []
        self._chain: list[_Draft] = []
        self._link: Link = ""
        self._quoted = ""
        self._forward: list[CodeFrame] = []
        self._located: list[CodeFrame] = []
        # several lines of the same greatest length show the width of the terminal that broke them
        self._longest = self._num_longest = 0
        # 'File "' without its end: the path was wrapped
        self._opened = ""

    def feed(self, place: int, line: Line, text: str, gap: bool) -> None:
        """Take the next line; `gap` says that an empty line precedes it."""
        bare = text.strip()
        if len(text) >= self._longest:
            self._num_longest = self._num_longest + 1 if len(text) == self._longest else 1
            self._longest = len(text)
        in_box = bool(self._chain) and self._chain[-1].style == "rich" and self._chain[-1].open
        if in_box:
            bare = bare.strip("|\u2502 ")
        if self._opened:
            bare, self._opened = self._opened + bare, ""
        if ('File "' in bare and bare.count('"') == 1) or (in_box and _CUT_PATH.match(bare)):
            self._opened = bare
            return
        if self._is_mark(place, line, bare):
            return
        draft = self._chain[-1] if self._chain else None
        found = read_frame(bare, draft.style if draft is not None else "plain", self._quoted, line.origin)
        if found is not None:
            self._add(place, *found)
        elif self._is_pytest(place, line, bare):
            return
        elif draft is not None and draft.open and self._goes_on(draft, place, line, text, bare):
            draft.last = place
        elif draft is not None and draft.kind and not gap and self._is_message(draft, text):
            self._extend(draft, text)
            draft.last = place
        elif draft is None or not draft.open or not draft.frames:
            self._alone(place, line, bare)

    def finish(self) -> list[ErrorChain]:
        self._flush()
        return self.chains

    def _is_mark(self, place: int, line: Line, bare: str) -> bool:
        """Whether the line only connects exceptions, or begins one."""
        if _HEADER in bare:
            self._begin(place, line, bare)
        elif _HANDLING in bare:
            self._link = "handling"
        elif _DIRECT in bare:
            self._link = "direct"
        elif _ORIGINAL[1] in bare or _RULE.match(bare):
            self._link = "original"
        elif _FORWARD in bare:
            self._flush()
            self._chain.append(_Draft(first=place, last=place, link="", kind=_FORWARD))
        elif bare == _USER_CODE and self._chain:
            self._chain[-1].open = True
        else:
            # IPython draws a line above a traceback
            return len(bare) > _SHORTEST_RULE and not bare.strip("-")
        return True

    def _begin(self, place: int, line: Line, bare: str) -> None:
        before, _, behind = (part.strip("- :") for part in bare.partition(_HEADER))
        link: Link = "original" if bare.startswith(_ORIGINAL[0]) else self._link
        draft = self._chain[-1] if self._chain else None
        if draft is not None and _CAUGHT.search(" ".join(draft.message[:1])):
            link = "original"
        if draft is not None and draft.kind == _FORWARD:
            self._forward = draft.frames
        if not link or draft is None:
            self._flush()
            link = ""
        draft = _Draft(first=place, last=place, link=link)
        named = _RAISED_ALONE.match(before) if before else None
        if named is not None:
            draft.style, draft.announced, draft.origin = "notebook", named[1], line.origin
        elif bare.startswith(("\u256d", "+-", "|-")) and "Group" not in before:
            draft.style = "rich"
        self._link = ""
        self._chain.append(draft)
        # the paste lost the end of the header line
        first = read_frame(behind, draft.style, "", line.origin) if behind else None
        if first is not None:
            self._add(place, *first)

    def _add(self, place: int, frame: CodeFrame, style: Style) -> None:
        draft = self._chain[-1] if self._chain else None
        if draft is None or not draft.open:
            # the beginning of the traceback was cut off
            link, self._link = self._link, ""
            if not link:
                self._flush()
            draft = _Draft(first=place, last=place, link=link if self._chain else "", style=style)
            self._chain.append(draft)
        draft.frames.append(frame)
        draft.last = place

    def _goes_on(self, draft: _Draft, place: int, line: Line, text: str, bare: str) -> bool:
        """Take a line of an open traceback: source, or the exception itself; False if it is neither."""
        frame = draft.frames[-1] if draft.frames else None
        arrow = _ARROW.match(bare) if draft.style in ("notebook", "rich") else None
        if arrow is not None and frame is not None:
            draft.frames[-1] = _with_source(frame, arrow[2].strip(" |\u2502"), int(arrow[1]))
            return True
        named = _RAISED.match(bare) if len(text) - len(text.lstrip()) <= 3 or bare[:1].isupper() else None
        if named is not None and _is_raised(named, draft, text):
            if draft.kind == _FORWARD:
                self._forward = draft.frames
                self._chain.pop()
                self._alone(place, line, bare)
                return True
            if draft.kind:
                # frames of the user's code, which follow the exception
                draft.open = False
                return False
            draft.kind, draft.message = named[1], [named[2] or ""]
            draft.origin, draft.open, draft.forward = line.origin, False, tuple(self._forward)
            self._forward = []
            return True
        if frame is None or draft.style in ("notebook", "rich"):
            return True
        if not frame.source and not _CARETS.match(bare) and draft.style == "plain":
            draft.frames[-1] = _with_source(frame, bare, frame.line)
            return True
        return text[:1].isspace() or _CARETS.match(bare) is not None

    def _extend(self, draft: _Draft, text: str) -> None:
        """Add a line to a message; a word that the terminal broke at its edge is joined again."""
        before = len(draft.message[-1]) + (len(draft.kind) + 2 if len(draft.message) == 1 else 0)
        in_word = not (draft.message[-1][-1:].islower() and text[:1].isupper())
        if before == self._longest and self._num_longest > 1 and in_word:
            draft.message[-1] += text
        else:
            draft.message.append(text.strip())

    def _is_message(self, draft: _Draft, text: str) -> bool:
        """Whether the line continues the message of the exception that was just named."""
        if len(draft.message) >= _MOST_MESSAGE or draft.open:
            return False
        before = draft.message[-1]
        length = len(before) + (len(draft.kind) + 2 if len(draft.message) == 1 else 0)
        wrapped = length >= max(_WRAPPED_AT, self._longest - _RAGGED) or before.endswith((":", ",", "(", "and", "but"))
        if text[:2].isspace() or "\t" in text[:1] or not before:
            return True
        return wrapped and _LOGGED.match(text) is None

    def _alone(self, place: int, line: Line, bare: str) -> None:
        """Take an exception without its own traceback, or after a traceback of another style."""
        named = _RAISED_ALONE.match(bare) if "rror" in bare or "xception" in bare or "nterrupt" in bare else None
        if named is None:
            return
        kind, message = named[1], named[2] or ""
        if "." not in kind and not message and not self._link and not self._forward:
            return
        if any(one.kind == kind and one.message[:1] == [message] for one in self._chain):
            return
        if self._link == "" and not (self._chain and self._chain[-1].kind == "" and self._chain[-1].frames):
            self._flush()
        draft = _Draft(first=place, last=place, link=self._link if self._chain else "", origin=line.origin, open=False)
        draft.kind, draft.message = kind, [message]
        draft.forward, self._forward, self._link = tuple(self._forward), [], ""
        self._chain.append(draft)

    def _is_pytest(self, place: int, line: Line, bare: str) -> bool:
        """Take a line as pytest prints it: 'file.py:8: in name', 'E  Error: ...', the place of the error.

        In the long form the place is below its source, in the short form above it.
        """
        frame = _PYTEST_FRAME.match(bare) if ".py:" in bare else None
        if frame is not None:
            source, self._quoted = "" if frame[3] else self._quoted, ""
            number, function = int(frame[2]), frame[3] or ""
            found = CodeFrame(file=frame[1], line=number, function=function, source=source, origin=line.origin)
            draft = self._chain[-1] if self._chain else None
            if frame[4] and draft is not None and draft.style == "pytest":
                draft.frames.append(found)
                draft.last = place
                self._flush()
            else:
                self._located.append(found)
            return True
        if not bare.startswith("E  "):
            if self._located and self._located[-1].function and not self._located[-1].source:
                self._located[-1] = _with_source(self._located[-1], bare, self._located[-1].line)
                return True
            if not _CARETS.match(bare):
                self._quoted = bare
            return False
        said = bare[1:].strip()
        draft = self._chain[-1] if self._chain else None
        named = _RAISED_ALONE.match(said)
        if draft is not None and draft.style == "pytest" and not self._located:
            draft.message.append(said)
            draft.last = place
        elif named is not None:
            self._flush()
            draft = _Draft(first=place, last=place, link="", style="pytest", kind=named[1], origin=line.origin)
            draft.message, draft.frames, draft.open = [named[2] or ""], self._located, False
            self._located = []
            self._chain.append(draft)
        return True

    def _flush(self) -> None:
        told = [draft for draft in self._chain if draft.kind != _FORWARD and (draft.kind or draft.frames)]
        if told:
            self.chains.append(ErrorChain(errors=tuple(draft.ready() for draft in told), rank=self.rank))
        self._chain = []


class _Reader:
    """Hands each line of a text to the stream of the rank that wrote it."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._streams: dict[str, _Stream] = {}
        self._before: dict[str, int] = {}
        self._lines = lines

    def feed(self, place: int, line: Line) -> None:
        rank, text = unprefixed(line.text)
        stream = self._streams.get(rank)
        if stream is None:
            stream = self._streams[rank] = _Stream(rank)
        gap = line.number - self._before.get(rank, line.number) > 1 if not rank else False
        self._before[rank] = line.number
        for part in _ONE_LINE.split(text) if _HEADER in text and 'File "' in text else (text,):
            stream.feed(place, line, part, gap)

    def finish(self) -> list[ErrorChain]:
        return [chain for stream in self._streams.values() for chain in stream.finish()]


def _is_raised(named: Match[str], draft: _Draft, text: str) -> bool:
    """Whether the match is the line that names the exception, not a line of source."""
    name = named[1].rpartition(".")[2]
    if draft.frames and not draft.frames[-1].source and draft.style == "plain" and text[:4].isspace():
        return False
    if name.endswith("Warning") or not (draft.frames or draft.link or draft.kind):
        return name[:1].isupper() and not name.endswith("Warning") and _RAISED_ALONE.match(text.strip()) is not None
    if named[2] is None:
        return _RAISED_ALONE.match(named[0]) is not None or "." in named[1]
    return name.lstrip("_")[:1].isupper() or _RAISED_ALONE.match(named[0]) is not None


def _with_source(frame: CodeFrame, source: str, line: int) -> CodeFrame:
    return CodeFrame(file=frame.file, line=line, function=frame.function, source=source, origin=frame.origin)
