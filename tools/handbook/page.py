"""What a page of the handbook is, and how plain text becomes Markdown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# what Markdown or HTML would take for markup; code between backticks stays as it is
_MARKUP = re.compile(r"(`[^`]*`)|([\\*_\[\]|])|([<>&])")
# Markdown has no escape for what HTML takes for a tag
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_FENCE = re.compile(r"`{3,}")


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its place in the site ('causes/oom_capacity.md'), its title, and its text without the title."""

    place: str
    title: str
    text: str

    @property
    def markdown(self) -> str:
        """The whole file."""
        return f"# {plain(self.title)}\n\n{self.text.strip()}\n"


def plain(text: str) -> str:
    """`text` so that it reads the same in Markdown, with code left as code."""
    return _MARKUP.sub(lambda found: found[1] or _ENTITIES.get(found[3]) or f"\\{found[2]}", text)


def sentence(text: str) -> str:
    """`text` with a capital and a full stop; a first word that is a name of code keeps its letters."""
    text = text.strip()
    first = text.split(" ")[0]
    if first.islower() and first.isalpha():
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else text + "."


def fenced(text: str, kind: str = "text") -> str:
    """A block of code that may itself hold backticks."""
    longest = max((len(run) for run in _FENCE.findall(text)), default=2)
    marks = "`" * max(3, longest + 1)
    return f"{marks}{kind}\n{text.rstrip()}\n{marks}\n"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table; cells are Markdown already."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
