"""The handbook as a whole: the pages of docs/ with those that are generated, their navigation, their links."""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from gpudoc.doctor.registry import CATALOGUE
from gpudoc.knowledge.cause_rows import AREAS, area_of
from tools.handbook.api import api_pages
from tools.handbook.causes import area_title, cause_pages, place_of
from tools.handbook.commands import command_pages, rows_page
from tools.handbook.page import ROOT, Page

Nav = list[dict[str, "str | Nav"]]

DOCS = ROOT / "docs"
# the order of the pages; one that nobody has written is left out, one that is not named here stands under "More"
_SECTIONS: dict[str, tuple[str, ...]] = {
    "Find out why": ("doctor", "watch", "traces", "machine"),
    "Measure": ("bench", "bench-rows", "fleet"),
    "Tune": ("tune", "script", "cell", "loader", "plan"),
    "Train": ("train", "configuration", "cluster"),
    "Recipes": ("recipes/",),
    "Commands": ("commands", "commands/"),
}
_LAST: dict[str, tuple[str, ...]] = {
    "Reference": ("api", "faq", "glossary", "platforms", "files", "changelog", "contributing")
}
_LINK = re.compile(r"(?<!!)\[([^\]\[]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_TITLE = re.compile(r"\A# +(.+)\n")


def collect_pages() -> list[Page]:
    """Every page of the site: docs/, what those link to elsewhere in the project, and what is generated."""
    generated = [rows_page(), *api_pages(), *command_pages(), *cause_pages()]
    sources = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*.md"))}
    waiting = deque(sources.items())
    while waiting:
        _, path = waiting.popleft()
        for target in _project_links(path):
            place = _place_outside(target)
            if target.suffix == ".md" and place not in sources and not target.is_relative_to(DOCS):
                sources[place] = target
                waiting.append((place, target))
    known = {page.place for page in generated} | sources.keys()
    written = [_read(place, path, sources, known) for place, path in sources.items()]
    pages = {page.place: page for page in (*written, *generated)}
    pages["index.md"] = replace(
        pages["index.md"], text=pages["index.md"].text + _contents(navigation([*pages.values()]))
    )
    return list(pages.values())


def _contents(nav: Nav) -> str:
    """The table of contents for the first page: every page but those of single causes."""
    lines = ["\n## All pages\n"]
    for section in nav[1:]:
        for title, entries in section.items():
            links = [
                f"[{name}]({place})"
                for entry in entries
                if isinstance(entry, dict)
                for name, place in entry.items()
                if isinstance(place, str)
            ]
            lines.append(f"- {title}: " + " · ".join(links))
    return "\n".join(lines) + "\n"


def navigation(pages: Sequence[Page]) -> Nav:
    """Every page once, by section; causes by area."""
    left = {page.place: page for page in pages}
    nav: Nav = [{"gpudoc": left.pop("index.md").place}]

    def take(names: Sequence[str]) -> Nav:
        places = [
            p
            for name in names
            for p in ([f"{name}.md"] if not name.endswith("/") else sorted(left))
            if p.startswith(name)
        ]
        return [{left[p].title: left.pop(p).place} for p in dict.fromkeys(places) if p in left]

    nav += [{title: found} for title, names in _SECTIONS.items() if (found := take(names))]
    causes: Nav = [{"All causes": left.pop("causes/index.md").place}]
    for area in AREAS:
        of_area = [p for p in left if p.startswith("causes/") and area_of(PurePosixPath(p).stem) == area]
        title = area_title(area)
        causes.append({title[0].upper() + title[1:]: [{left[p].title: left.pop(p).place} for p in of_area]})
    nav.append({"Causes": causes})
    nav += [{title: found} for title, names in _LAST.items() if (found := take(names))]
    records = [{page.title: page.place} for page in list(left.values()) if page.place.startswith("records/")]
    others = [{page.title: page.place} for page in left.values() if not page.place.startswith("records/")]
    nav += [{title: found} for title, found in (("More", others), ("Records", records)) if found]
    return nav


def write_sources(folder: Path, pages: Sequence[Page]) -> Path:
    """The Markdown of every page, the assets and the configuration, below `folder`; returns the configuration."""
    for page in pages:
        path = folder / "pages" / page.place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page.markdown, "utf-8")
    assets = folder / "pages" / "assets"
    assets.mkdir(parents=True, exist_ok=True)
    for asset in sorted((Path(__file__).parent / "assets").iterdir()):
        (assets / asset.name).write_bytes(asset.read_bytes())
    for picture in sorted(path for path in DOCS.rglob("*") if path.is_file() and path.suffix != ".md"):
        target = folder / "pages" / picture.relative_to(DOCS)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(picture.read_bytes())
    settings = json.loads((Path(__file__).parent / "site.json").read_text("utf-8"))
    settings |= {"docs_dir": "pages", "site_dir": "site", "nav": navigation(pages)}
    # YAML reads JSON, and zensical reads YAML under this name
    config = folder / "mkdocs.yml"
    config.write_text(json.dumps(settings, indent=1), "utf-8")
    return config


def broken_links(pages: Sequence[Page]) -> list[str]:
    """Links from page to page that lead nowhere, as 'from -> to'."""
    places = {page.place for page in pages}
    return [f"{page.place} -> {target}" for page in pages for target in links_of(page) if target not in places]


def links_of(page: Page) -> list[str]:
    """The places of the site that a page links to."""
    return [_resolve(page.place, target) for _, target, _ in _LINK.findall(_CODE.sub("", page.text))]


def orphans(pages: Sequence[Page]) -> list[str]:
    """Pages that cannot be reached from the first by links in the text alone."""
    by_place = {page.place: page for page in pages}
    reached, waiting = {"index.md"}, ["index.md"]
    while waiting:
        for target in links_of(by_place[waiting.pop()]):
            if target in by_place and target not in reached:
                reached.add(target)
                waiting.append(target)
    return sorted(by_place.keys() - reached)


def _read(place: str, path: Path, sources: Mapping[str, Path], known: set[str]) -> Page:
    text = _COMMENT.sub("", path.read_text("utf-8"))
    title = _TITLE.match(text)
    if title is None:
        raise SystemExit(f"{path.relative_to(ROOT)}: the first line must be its title: # ...")
    places = {source.resolve(): where for where, source in sources.items()}

    def relink(found: re.Match[str]) -> str:
        label, target, anchor = found[1], found[2], found[3] or ""
        whole = (path.parent / target).resolve()
        where = places.get(whole) or (_resolve(place, target) if _resolve(place, target) in known else None)
        if where is None:
            # a file of the project that is no page: named, not linked
            return label if label.startswith("`") else f"{label} (`{whole.relative_to(ROOT)}`)"
        return f"[{label}]({os.path.relpath(where, PurePosixPath(place).parent)}{anchor})"

    parts = _CODE.split(text[title.end() :])
    body = "".join(_to_cause(part, place) if part.startswith("`") else _LINK.sub(relink, part) for part in parts)
    return Page(place, title[1].replace("`", ""), body)


def _to_cause(code: str, place: str) -> str:
    """The name of a cause in code, with a link to its page."""
    if code.strip("`") not in CATALOGUE or code.startswith("``"):
        return code
    return f"[{code}]({os.path.relpath(place_of(code.strip('`')), PurePosixPath(place).parent)})"


def _project_links(path: Path) -> list[Path]:
    text = _CODE.sub("", path.read_text("utf-8"))
    targets = [(path.parent / target).resolve() for _, target, _ in _LINK.findall(text)]
    return [target for target in targets if target.is_file() and target != ROOT / "README.md"]


def _place_outside(path: Path) -> str:
    if not path.is_relative_to(ROOT):
        return path.name
    folder = "records/" if path.parent.name == "records" else ""
    return folder + (path.name.lower() if not folder else path.name)


def _resolve(place: str, target: str) -> str:
    return os.path.normpath(PurePosixPath(place).parent / target)


def foreign_parts(site: Path) -> list[str]:
    """Scripts, styles, fonts and pictures that a built page takes from another site; links to read are none."""
    found: set[str] = set()
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8")
        found.update(re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?((?:https?:)?//[^\"'\s>]+)", text))
        found.update(
            re.findall(r"<link\b[^>]*rel=[\"']?(?:stylesheet|preload|preconnect|icon)[^>]*(https?://[^\"'\s>]+)", text)
        )
    for path in site.rglob("*.css"):
        found.update(re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')\s]+)", path.read_text("utf-8")))
    return sorted(found)
