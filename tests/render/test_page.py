import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from gpudoc.errors import GpudocError
from gpudoc.render.page import Badge, Figure, Fold, Note, Number, Section, page, save_page
from gpudoc.render.table import Table


class Reader(HTMLParser):
    """Collects tags, checks that they nest, and keeps the text."""

    VOID = frozenset({"meta", "br", "link", "img"})

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text, self.attributes = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(text):
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    return reader


def words(text):
    """What is read on the page, in order, apart from style and script."""
    body = text.partition("</head>")[2].rpartition("<script>")[0]
    return " ".join(" ".join(read(f"<html>{body}</body></html>").text).split())


def test_a_page_holds_every_block_in_order_and_nests():
    table = Table(headings=("case", "GB/s"), rows=(("copy", "40.8"), ("triad", "38.1")), numeric=frozenset({"GB/s"}))
    text = page(
        "Bench of a CPU",
        [Section("Results", ("first words", table, Figure("<svg></svg>", "a curve"))), Section("Doubts", ("none",))],
        lead="two cores",
        foot="made by gpudoc",
    )
    reader = read(text)
    order = ["Bench of a CPU", "two cores", "Results", "first words", "case", "copy", "38.1", "a curve", "Doubts"]
    places = [words(text).index(word) for word in order]
    assert places == sorted(places)
    assert reader.tags.count("h2") == 2
    assert reader.tags.count("td") == 4


def test_foreign_text_cannot_become_markup():
    evil = "<script>alert(1)</script>\"'&"
    note = Note(kind='x" onload="y', title=evil, text=evil, points=(evil,), commands=(evil,))
    table = Table(headings=(evil,), rows=((evil,),))
    fold = Fold(evil, (evil, note), evil)
    blocks = (evil, note, table, Figure("", evil), fold)
    number = Number(evil, evil, evil, evil)
    text = page(evil, [Section(evil, blocks)], lead=evil, foot=evil, badge=Badge(evil, evil), numbers=[number])
    reader = read(text)
    assert reader.tags.count("script") == 1
    assert not [name for name, _ in reader.attributes if name.startswith("on")]


def test_the_page_allows_no_script_but_its_own():
    text = page("t", [])
    script = re.search("<script>(.*)</script>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text


def test_a_command_is_copied_by_a_button_that_is_hidden_without_a_script():
    text = page("t", [Section("s", (Note(kind="info", title="n", commands=("sudo reboot",)),))])
    assert '<pre>sudo reboot</pre><button type="button" class="copy" hidden>' in text


def test_a_step_is_a_sentence_with_its_own_command_or_none():
    text = page("t", [Section("s", (Note(kind="info", title="n", steps=(("Look.", "nvidia-smi"), ("Wait.", ""))),))])
    assert words(text) == "t s n Look. nvidia-smi Copy Wait."
    assert text.count("<button") == 1


def test_a_share_has_a_bar_of_its_length_and_other_text_has_none():
    table = Table(headings=("share",), rows=(("83%",), ("",), ("17% (20%)",), ("140%",)), shares=frozenset({"share"}))
    text = page("t", [Section("s", (table,))])
    assert re.findall(r"--of:(\d+)%", text.partition("<main>")[2]) == ["83", "17", "100"]


def test_badge_and_numbers_stand_before_the_sections_and_folds_are_closed():
    folded = Section("Checks", (Fold("GPU", ("all is well",), "2 passed"),))
    text = page("t", [folded], badge=Badge("good", "healthy"), numbers=[Number("memory", "40.8", "GB/s", "of 50")])
    order = ["✓ healthy", "memory 40.8 GB/s of 50", "Checks", "GPU 2 passed", "all is well"]
    places = [words(text).index(word) for word in order]
    assert places == sorted(places)
    assert '<details class="fold">' in text


def test_the_page_needs_nothing_outside_itself_and_knows_dark_and_narrow():
    text = page("t", [])
    assert "http://" not in text
    assert "https://" not in text
    assert "prefers-color-scheme:dark" in text
    assert "@media print" in text
    assert "width=device-width" in text


def test_rows_must_fit_their_headings():
    with pytest.raises(ValueError, match="zip"):
        page("t", [Section("s", (Table(headings=("a", "b"), rows=(("1",),)),))])


def test_saving_where_no_folder_is_says_so(tmp_path):
    save_page(tmp_path / "p.html", "text")
    assert (tmp_path / "p.html").read_text() == "text"
    with pytest.raises(GpudocError, match="No such file"):
        save_page(tmp_path / "missing" / "p.html", "text")
