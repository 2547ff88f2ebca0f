"""What sort of text it is: a paste about one machine, or documentation and source code, which are about none.

And what kinds of report it holds, beyond those whose own reader recognises them.
"""

from __future__ import annotations

import ast
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gpudoc.facts.readers.large_file import read_head
from gpudoc.facts.readers.words import Words
from gpudoc.frozen import dataclass
from gpudoc.patterns import MULTILINE, Pattern

if TYPE_CHECKING:
    from gpudoc.facts.readers.gather import Gather
    from gpudoc.facts.readers.model import CleanText

Genre = Literal["paste", "chapters", "documentation", "source", "configuration"]

# how a file of Nsight Systems begins, and how far into a trace of torch.profiler one of its signs stands
SQLITE, _HEAD = b"SQLite format 3\x00", 1 << 16
# how the first line of its JSON begins: with all strings, one of them, or an event
_NSYS_EXPORT = Pattern(r'\{(?:"data":\["\[|"type":"String",|"Type":\d{1,4},"\w{1,40}Event":\{)')
_MOST_CHARACTERS = 200_000
_FENCE = Pattern(r"^\s{0,3}(?:```|~~~)")
_HEADING = Pattern(r"^#{1,6} +\S")
_HEADS = ("#", "===", "---", "~~~", "^^^")
_UNDERLINE = Pattern(r"^(?:={3,}|-{3,}|~{3,}|\^{3,})\s*$")
_LINK = Pattern(r"\]\([^)\s]{1,400}\)|^\.\. \w[\w-]*::|`[^`\n]{1,200} <https?://[^>]{1,400}>`_")
# the words of a link are another page's title
_LINKED = Pattern(r"\[[^\]\n]{1,80}\]\([^)\s]{1,400}\)")
_TABLE = Pattern(r"^\s{0,3}\|.*\|\s*$")
# who reports a fault speaks of himself; who documents speaks to the reader
FIRST_PERSON = Pattern(r"(?i)(?<![\w'/-])(?:I|I'm|I've|I'd|my|mine|me)(?![\w/-])(?!\.[a-z])")
_REPORT_HEADING = Pattern(
    r"(?i)^#{1,6}\W*(?:describe the (?:bug|issue)|bug(?: report| description)?\W*$|(?:steps )?to reproduce|reproduc\w+|"
    r"(?:expected|actual|current) (?:behaviou?r|result)|(?:your )?(?:current )?environment(?: info\w*)?\W*$|"
    r"system info|versions?\W*$|(?:error )?logs?\W*$|stack ?trace|traceback|additional (?:context|information)|"
    r"issue|problem|what happened|checklist|prerequisite)"
)
_FAULT = Pattern(r"Traceback \(most recent call last\)|^\w*(?:Error|Exception): ")
_SETTINGS = (".yaml", ".yml", ".toml", ".ini", ".cfg")
_SETTING = Pattern(r"^\s*(?:[#;\[\]{}]|-(?:\s|$)|[\w\"'./-]{1,80}\s*[:=](?:\s|$))")
# an environment's list of packages says what a machine has
_PACKAGES = Pattern(r"(?m)^(?:dependencies|packages):")
# the two sections that a config of gpudoc has, with what is imported
_OWN_CONFIG = Pattern(r"(?m)^model:[^\n]*\n(?:[ #][^\n]*\n)*? +target:|^model: *\{ *target:")
_FEWEST_HEADINGS, _FEWEST_MARKS, _FEWEST_CHAPTERS, _FEWEST_LINES = 4, 4, 2, 20
_ENDINGS = (".md", ".markdown", ".rst", ".adoc")
_OWN_REPORT = "**gpudoc doctor: "


@dataclass(frozen=True, slots=True)
class Kind:
    """The genre of a text and how it shows, as one phrase.

    'chapters' is impersonal Markdown, too little of it to tell documentation from a paste by its structure alone.
    """

    genre: Genre
    why: str = ""


# what a text is in doubt
PASTE = Kind("paste")


def genre_of(text: str, name: str = "") -> Kind:
    """What sort of text this is, by its structure and by the ending of its file's name; a paste in doubt."""
    head = text[:_MOST_CHARACTERS]
    if head.startswith(_OWN_REPORT):
        return PASTE
    # people paste a few lines of their program beside what happened, and say so in its comments
    if (name.lower().endswith(".py") or head.count("\n") >= _FEWEST_LINES) and _is_program(head):
        return Kind("source", "the whole text is a Python program")
    if name.lower().endswith(_SETTINGS) and _is_settings(head):
        is_own = _OWN_CONFIG.search(head) and "\ndata:" in f"\n{head}"
        return Kind("configuration", "a config for gpudoc" if is_own else "a program's settings")
    return _markdown(head.splitlines(), named_so=name.lower().endswith(_ENDINGS))


def _is_program(text: str) -> bool:
    """Whether it parses as Python from end to end and defines or imports something."""
    if "import " not in text and "def " not in text:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef) for node in tree.body)


def _is_settings(text: str) -> bool:
    """Whether each line is a setting, a heading of settings or a comment."""
    lines = [line for line in text.splitlines() if line.strip()]
    return bool(lines) and not _PACKAGES.search(text) and all(map(_SETTING.search, lines))


def _markdown(lines: list[str], *, named_so: bool) -> Kind:
    """Documentation has chapters, examples, links and tables, and nobody in it to whom something happened."""
    if not any(line.startswith(_HEADS) for line in lines):
        return PASTE
    in_fence = False
    headings = fences = links = rows = 0
    before = ""
    for line in lines:
        if _FENCE.match(line):
            fences += not in_fence
            in_fence = not in_fence
        elif not in_fence:
            # a comment in a log begins alike, and stands in the middle of other lines
            heading = not before.strip() and _HEADING.match(line) is not None
            personal = not heading and FIRST_PERSON.search(_LINKED.sub("", line) if "](" in line else line)
            if _REPORT_HEADING.match(line) or personal or _FAULT.search(line):
                return PASTE
            underlined = before.strip() and len(before) < 80 and not before.startswith((" ", "|", "-", "+"))
            headings += bool(heading or (underlined and _UNDERLINE.match(line)))
            links += sum(1 for _ in _LINK.finditer(line))
            rows += bool(_TABLE.match(line))
        before = line
    why = f"{headings} headings, {fences} fenced examples, {links} links, and no report of a machine"
    whole = headings >= _FEWEST_HEADINGS and fences + links + rows >= _FEWEST_MARKS and (fences or links)
    if whole or (named_so and headings):
        return Kind("documentation", why)
    return Kind("chapters", why) if headings >= _FEWEST_CHAPTERS else PASTE


_KINDS: tuple[tuple[str, Pattern | Words], ...] = (
    ("traceback", Pattern(r"Traceback\s+\(most\s+recent\s+call\s+last\)|^[^\S\n]*File \".+\", line \d+", MULTILINE)),
    ("error", Pattern(r"(?m)^\W{0,6}(?:\[[^\]]{1,30}\]:?\s*)?(?:\w+\.)*\w*(?:Error|Exception|Warning)\b\s*:")),
    (
        "training_log",
        Words(
            r"\bepochs?\b\W{0,4}[\[(]?\s*\d+|\b(?:iter|step|steps|iteration)s?\b\W{0,4}\d+|\d\s?(?:it/s|s/it|img/s|"
            r"samples?/s|tokens/s|examples/s)|\b\w*loss\w*\b\W{0,4}\d|loss scal|gradient overflow|\blr\W{1,3}\d|\bETA\b"
        ),
    ),
    (
        "gpu_report",
        Words(
            r"\bnvidia-smi\b|\bnvcc\b|\brocm-smi\b|\bcuda\b|\bcudnn\b|\bnccl\b|\bnvidia\b|"
            r"(?:\b|x)[AHB][12]00s?\b|\bRTX ?\d{4}"
        ),
    ),
    (
        "torch_report",
        Words(r"\b(?:py)?torch\b|\bcuda\(\)|DataLoader|\bGPU\b|\btorchrun\b|init_process_group|\bdeepspeed\b"),
    ),
    ("server_log", Words(r"Application startup complete|Uvicorn running on")),
    ("kernel_log", Words(r"\bNVRM\b|\boom-kill|\bXid\b|out of memory: kill")),
    (
        "installer",
        Words(r"\b(?:pip3?|conda|uv|poetry) (?:install|add|sync|update)\b|No matching distribution"),
    ),
)


def is_trace(path: Path) -> bool:
    """Whether the file is a profiler's trace, by its beginning."""
    head = read_head(path, _HEAD)
    if head.startswith(SQLITE):
        return True
    text = head.decode("utf-8", "replace")
    if text.lstrip("\ufeff \r\n\t")[:1] == "[":
        return '"ph"' in text and '"ts"' in text
    if is_nsys_export(text):
        return True
    return '"traceEvents"' in text or ('"schemaVersion"' in text and '"deviceProperties"' in text)


def is_nsys_export(head: str) -> bool:
    """Whether a file that begins like this was written by `nsys export --type json`."""
    return _NSYS_EXPORT.match(head) is not None


def recognise(text: CleanText, gather: Gather) -> None:
    """Name in `gather` every kind of report whose marks are in the text."""
    for kind, pattern in _KINDS:
        if text.find(pattern):
            gather.recognise(kind)
