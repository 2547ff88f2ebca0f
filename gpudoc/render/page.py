"""One self-contained HTML page without fonts or addresses outside the file; for light, dark, phones and paper.

Its only script is gpudoc's own, which the page allows by its digest: quoted text could not run even if it were not
escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from gpudoc.control_characters import escape_controls
from gpudoc.facts.readers.model import ENGLISH, Language
from gpudoc.facts.redact import Redactor
from gpudoc.frozen import dataclass
from gpudoc.own_files import read_own_file
from gpudoc.patterns import Pattern
from gpudoc.render.table import Table

_SHARE = Pattern(r"(\d{1,4})\s?%")
# a cell with at most this many letters stays on one line
_SHORT = 22
_MARKS = {"broken": "✗", "warning": "!", "good": "✓", "info": "i"}


@dataclass(frozen=True, slots=True)
class Figure:
    """An inlined drawing: markup made by gpudoc itself, and the sentence under it."""

    svg: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Fold:
    """A part that can be opened and closed: its title, its blocks, and soft words after the title."""

    title: str
    blocks: tuple[Block, ...]
    aside: str = ""
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A boxed remark: `kind` is 'broken', 'warning', 'info' or 'good'; `commands` have a button that copies them.

    `steps` are the things to do, each a sentence and its command or ''; `tag` is a soft line under the title; `more`
    holds the blocks at the end of the box.
    """

    kind: str
    title: str
    text: str = ""
    points: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    steps: tuple[tuple[str, str], ...] = ()
    tag: str = ""
    more: tuple[Block, ...] = ()


Block = Table | Figure | Note | Fold | str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the blocks under it, in order: paragraphs (plain text), tables, figures, notes, folds."""

    heading: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Badge:
    """The verdict in a word or two next to the title; `kind` as in a Note, `language` for the whole page."""

    kind: str
    text: str
    language: Language = ENGLISH


@dataclass(frozen=True, slots=True)
class Number:
    """One of the few big figures at the top: its label, value and unit, and a soft remark; the main one is larger."""

    label: str
    value: str
    unit: str = ""
    remark: str = ""
    is_main: bool = False


def page(
    title: str,
    sections: Sequence[Section],
    lead: str = "",
    foot: str = "",
    badge: Badge | None = None,
    numbers: Sequence[Number] = (),
) -> str:
    """The document as text, without the names of people and machines, so that it may leave the machine."""
    clean = Redactor.of_this_process().clean
    return whole_page(*clean((title, tuple(sections), lead, foot, badge, tuple(numbers))))


def whole_page(
    title: str,
    sections: Sequence[Section],
    lead: str = "",
    foot: str = "",
    badge: Badge | None = None,
    numbers: Sequence[Number] = (),
) -> str:
    """The document of text that is already redacted or wanted whole; escapes every string but a figure's markup."""
    script = _asset("page.js")
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_digest(script)}'"
    mark, language = "", ENGLISH
    if badge is not None:
        language = badge.language
        mark = f'<p class="badge {_escaped(badge.kind)}">{_MARKS.get(badge.kind, "")} {_escaped(badge.text)}</p>'
    body = "\n".join(_section(section) for section in sections)
    lead_html = f'<p class="lead">{_escaped(lead)}</p>' if lead else ""
    foot_html = f"<footer>{_escaped(foot)}</footer>" if foot else ""
    shown = (
        f'<!doctype html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_escaped(title)}</title>\n<style>{_asset('page.css')}</style>\n</head>\n<body>\n<main>\n"
        f'<header><div class="top"><h1>{_escaped(title)}</h1>{mark}</div>\n{lead_html}\n{_numbers(numbers)}</header>\n'
        f"{body}\n{foot_html}\n</main>\n"
    )
    # characters that hide or reverse text mislead on a page as they do on a terminal
    return f"{escape_controls(shown)}<script>{script}</script>\n</body>\n</html>\n"


def save_page(path: Path, text: str) -> None:
    """Write the page; GpudocError if the folder is missing or not writable."""
    from gpudoc.writing import write_whole

    write_whole(path, text, hint="--html page.html")


@cache
def _asset(name: str) -> str:
    return read_own_file(Path(__file__).with_name(name))


def _digest(script: str) -> str:
    import base64
    import hashlib

    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _escaped(text: str) -> str:
    import html

    return html.escape(text)


def _numbers(numbers: Sequence[Number]) -> str:
    if not numbers:
        return ""
    return f'<dl class="figures">{"".join(map(_number, numbers))}</dl>\n'


def _number(one: Number) -> str:
    # the space is dropped if the unit is on the next line
    unit = f' <span class="unit">{_escaped(one.unit)}</span>' if one.unit else ""
    remark = f'<dd class="small">{_escaped(one.remark)}</dd>' if one.remark else ""
    main = ' class="main"' if one.is_main else ""
    return f'<div{main}><dt>{_escaped(one.label)}</dt><dd class="value">{_escaped(one.value)}{unit}</dd>{remark}</div>'


def _section(section: Section) -> str:
    return f"<section>\n<h2>{_escaped(section.heading)}</h2>\n{_blocks(section.blocks)}\n</section>"


def _blocks(blocks: Sequence[Block]) -> str:
    return "\n".join(_block(block) for block in blocks)


def _block(block: Block) -> str:
    match block:
        case str():
            return f"<p>{_escaped(block)}</p>"
        case Figure():
            caption = f"<figcaption>{_escaped(block.caption)}</figcaption>" if block.caption else ""
            return f"<figure>{block.svg}{caption}</figure>"
        case Fold():
            aside = f"<small>{_escaped(block.aside)}</small>" if block.aside else ""
            title = f"<summary>{_escaped(block.title)}{aside}</summary>"
            state = " open" if block.is_open else ""
            return f'<details class="fold"{state}>{title}\n{_blocks(block.blocks)}\n</details>'
        case Note():
            return _note(block)
        case Table():
            return _table(block)


def _note(note: Note) -> str:
    tag = f'<p class="tag">{_escaped(note.tag)}</p>' if note.tag else ""
    text = f"<p>{_escaped(note.text)}</p>" if note.text else ""
    points = "".join(f"<li>{_escaped(point)}</li>" for point in note.points)
    listed = f"<ul>{points}</ul>" if points else ""
    commands = "".join(_command(command) for command in note.commands)
    steps = "".join(f"<li>{_escaped(say)}{_command(run) if run else ''}</li>" for say, run in note.steps)
    done = f'<ol class="steps">{steps}</ol>' if steps else ""
    inside = f"<h3>{_escaped(note.title)}</h3>{tag}{text}{done}{listed}{commands}{_blocks(note.more)}"
    return f'<div class="note {_escaped(note.kind)}">{inside}</div>'


def _command(command: str) -> str:
    button = '<button type="button" class="copy" hidden>Copy</button>'
    return f'<div class="command"><pre>{_escaped(command)}</pre>{button}</div>'


def _table(table: Table) -> str:
    kinds = ["n" if heading in table.numeric else "" for heading in table.headings]
    head = "".join(f"<th{_class(kind)}>{_escaped(text)}</th>" for text, kind in zip(table.headings, kinds, strict=True))
    rows = "\n".join(
        "<tr>" + "".join(_cell(table, *cell) for cell in zip(row, table.headings, kinds, strict=True)) + "</tr>"
        for row in table.rows
    )
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>'


def _cell(table: Table, text: str, heading: str, kind: str) -> str:
    share = _SHARE.match(text) if heading in table.shares else None
    if share is not None:
        return f'<td class="{kind} of" style="--of:{min(100, int(share[1]))}%">{_escaped(text)}</td>'
    return f"<td{_class(kind or ('k' if len(text) <= _SHORT else ''))}>{_escaped(text)}</td>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
