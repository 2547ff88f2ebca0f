import json
import subprocess
import sys

import pytest

from tools.handbook import site
from tools.handbook.page import ROOT, Page
from tools.handbook.site import broken_links, collect_pages, foreign_parts, navigation, orphans, write_sources


@pytest.fixture(scope="module")
def pages():
    return collect_pages()


def places_in(nav):
    return [
        p
        for entry in nav
        for value in entry.values()
        for p in ([value] if isinstance(value, str) else places_in(value))
    ]


def test_every_link_leads_somewhere_and_every_page_is_reached(pages):
    assert broken_links(pages) == []
    assert orphans(pages) == []


def test_every_page_stands_in_the_navigation_once(pages):
    assert sorted(places_in(navigation(pages))) == sorted(page.place for page in pages)


def test_every_page_of_docs_is_on_the_site(pages):
    assert {path.relative_to(site.DOCS).as_posix() for path in site.DOCS.rglob("*.md")} <= {
        page.place for page in pages
    }


def test_a_page_that_nobody_placed_stands_under_more_and_one_that_is_missing_is_left_out(pages):
    kept = [page for page in pages if page.place != "watch.md"]
    nav = navigation([*kept, Page("surprise.md", "Surprise", "")])
    (more,) = (entry["More"] for entry in nav if "More" in entry)
    assert {"Surprise": "surprise.md"} in more
    assert "watch.md" not in places_in(nav)


def test_a_broken_link_and_an_orphan_are_found():
    pages = [
        Page("index.md", "A", "[b](b.md) `[no](code.md)`"),
        Page("b.md", "B", "[c](gone.md)"),
        Page("d.md", "D", ""),
    ]
    assert broken_links(pages) == ["b.md -> gone.md"]
    assert orphans(pages) == ["d.md"]


def test_what_lies_outside_docs_becomes_a_page_or_is_named(pages):
    by_place = {page.place: page for page in pages}
    assert "(../contributing.md#a-new-message-a-new-cause)" in by_place["recipes/add-a-message.md"].text
    assert "(records/2026-11-21-faq.md)" in by_place["faq.md"].text
    # a source file of the project is named, and no link of the site leads to it
    assert "(tests/standin/README.md)" not in by_place["contributing.md"].text


def test_the_name_of_a_cause_leads_to_its_page(pages):
    text = next(page.text for page in pages if page.place == "recipes/loss-is-nan.md")
    assert "[`fp16_overflow_nan`](../causes/fp16_overflow_nan.md)" in text


def test_nothing_is_taken_from_another_site(pages, tmp_path):
    config = json.loads(write_sources(tmp_path, pages).read_text("utf-8"))
    assert config["theme"]["font"] is False
    assert config["extra"]["polyfills"] == ["assets/iframe-worker.js"]
    assert (tmp_path / "pages" / "assets" / "iframe-worker.js").is_file()


def test_pictures_of_docs_are_beside_their_pages(tmp_path, monkeypatch):
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    (tmp_path / "docs" / "pictures" / "screen.svg").write_text("<svg/>")
    monkeypatch.setattr(site, "DOCS", tmp_path / "docs")
    write_sources(tmp_path / "out", [Page("index.md", "A", ""), Page("causes/index.md", "C", "")])
    assert (tmp_path / "out" / "pages" / "pictures" / "screen.svg").read_text() == "<svg/>"


def test_a_script_a_style_or_a_font_of_another_site_is_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<script src="https://a.example/x.js"></script><a href="https://fine.example/">read</a>'
        '<link rel="stylesheet" href="https://b.example/x.css"><img src="local.png">'
    )
    (tmp_path / "a.css").write_text("@font-face { src: url(//c.example/f.woff2) }")
    assert foreign_parts(tmp_path) == ["//c.example/f.woff2", "https://a.example/x.js", "https://b.example/x.css"]


def test_the_check_needs_no_generator():
    without = "import runpy, sys; sys.modules['zensical'] = None; sys.argv = ['handbook', '--check']; "
    command = [sys.executable, "-c", without + "runpy.run_module('tools.handbook', run_name='__main__')"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "all linked" in done.stdout


def test_the_site_is_built_without_a_warning_and_with_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("zensical", reason="pip install -e '.[docs]'")
    done = subprocess.run(
        [sys.executable, "-m", "tools.handbook", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "causes" / "oom_fragmentation.html").is_file()
    assert '"oom_fragmentation"' in (tmp_path / "site" / "search.json").read_text("utf-8") or (
        "oom_fragmentation" in (tmp_path / "site" / "search.js").read_text("utf-8")
    )
