"""One self-contained HTML page: no scripts, no fonts, no address outside the file; light and dark; phone width."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudoc.writing import write_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of plain text under headings; columns named in `numeric` are set to the right."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Figure:
    """An inlined drawing: SVG markup that gpudoc made itself, and the sentence under it."""

    svg: str
    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A boxed remark: `kind` is 'broken', 'warning', 'info' or 'good'; `commands` are shown to copy."""

    kind: str
    title: str
    text: str = ""
    points: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


Block = Table | Figure | Note | str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it in order: paragraphs (plain text), tables, figures, notes."""

    heading: str
    blocks: tuple[Block, ...]


def page(title: str, sections: Sequence[Section], lead: str = "", foot: str = "") -> str:
    """The whole document as text; every string but a figure's SVG is escaped."""
    body = "\n".join(_section(section) for section in sections)
    lead_html = f'<p class="lead">{html.escape(lead)}</p>' if lead else ""
    foot_html = f"<footer>{html.escape(foot)}</footer>" if foot else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{html.escape(title)}</h1>\n{lead_html}\n{body}\n{foot_html}\n</main>\n</body>\n</html>\n"
    )


def save_page(path: Path, text: str) -> None:
    """Write the page; GpudocError when the folder is missing or not writable."""
    write_whole(path, text, hint="--html page.html")


def _section(section: Section) -> str:
    blocks = "\n".join(_block(block) for block in section.blocks)
    return f"<section>\n<h2>{html.escape(section.heading)}</h2>\n{blocks}\n</section>"


def _block(block: Block) -> str:
    match block:
        case str():
            return f"<p>{html.escape(block)}</p>"
        case Figure():
            caption = f"<figcaption>{html.escape(block.caption)}</figcaption>" if block.caption else ""
            return f"<figure>{block.svg}{caption}</figure>"
        case Note():
            return _note(block)
        case Table():
            return _table(block)


def _note(note: Note) -> str:
    text = f"<p>{html.escape(note.text)}</p>" if note.text else ""
    points = "".join(f"<li>{html.escape(point)}</li>" for point in note.points)
    listed = f"<ul>{points}</ul>" if points else ""
    commands = "".join(f"<pre>{html.escape(command)}</pre>" for command in note.commands)
    return (
        f'<div class="note {html.escape(note.kind)}"><h3>{html.escape(note.title)}</h3>{text}{listed}{commands}</div>'
    )


def _table(table: Table) -> str:
    kinds = [' class="n"' if heading in table.numeric else "" for heading in table.headings]
    head = "".join(f"<th{kind}>{html.escape(text)}</th>" for text, kind in zip(table.headings, kinds, strict=True))
    rows = "\n".join(
        "<tr>" + "".join(f"<td{kind}>{html.escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in table.rows
    )
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>'


# the figure colours are told apart by people who see no red or no green (Okabe and Ito, 2008), on both grounds
_STYLE = """
:root{--ground:#fff;--ink:#1c2127;--soft:#5a6572;--line:#d8dee4;--panel:#f6f8fa;--broken:#b3261e;--warning:#8a5a00;
--info:#0a5ea8;--good:#1a7f37;--s0:#0072b2;--s1:#d55e00;--s2:#009e73;--s3:#a35a8b;--s4:#8a6d00;--s5:#3a8fc4}
@media (prefers-color-scheme:dark){:root{--ground:#12161b;--ink:#e4e8ec;--soft:#9aa6b2;--line:#333b44;--panel:#1a2027;
--broken:#ff8a80;--warning:#f0b429;--info:#6cb6ff;--good:#57c46b;--s0:#56b4e9;--s1:#ff8c42;--s2:#2fcf9f;--s3:#dd9cc6;
--s4:#e6c229;--s5:#9ecbff}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:60rem;margin:0 auto;padding:1.5rem 1rem 3rem}
h1{font-size:1.6rem;line-height:1.25;margin:.2rem 0 .6rem}
h2{font-size:1.15rem;margin:2rem 0 .6rem;padding-bottom:.25rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:0 0 .3rem}
p{margin:.4rem 0 .8rem;max-width:46rem}
.lead{font-size:1.05rem;color:var(--soft)}
footer{margin-top:2.5rem;color:var(--soft);font-size:.85rem}
.scroll{overflow-x:auto;margin:.6rem 0 1rem}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums;min-width:100%}
th,td{text-align:left;vertical-align:top;padding:.3rem .7rem .3rem 0;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:600;white-space:nowrap}
th.n,td.n{text-align:right;white-space:nowrap}
td:first-child{white-space:nowrap}
td:nth-child(2):not(.n){min-width:9rem}
td:last-child:not(.n):not(:first-child){min-width:13rem}
figure{margin:.8rem 0 1.2rem}
figure svg{display:block;width:100%;height:auto;max-width:40rem}
figcaption{color:var(--soft);font-size:.88rem;max-width:40rem;margin-top:.3rem}
.note{border-left:4px solid var(--info);background:var(--panel);padding:.7rem .9rem;margin:.7rem 0;
border-radius:0 6px 6px 0}
.note p,.note ul{margin:.2rem 0 .4rem}
.note.broken{border-color:var(--broken)}.note.warning{border-color:var(--warning)}.note.good{border-color:var(--good)}
pre{overflow-x:auto;background:var(--ground);border:1px solid var(--line);border-radius:4px;
padding:.5rem .7rem;margin:.4rem 0;
font:.85rem/1.4 ui-monospace,SFMono-Regular,Menlo,monospace}
@media print{body{font-size:11pt}main{max-width:none}}
"""
