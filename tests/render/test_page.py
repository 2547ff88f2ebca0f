from html.parser import HTMLParser

import pytest

from gpudoc.errors import GpudocError
from gpudoc.render.page import Figure, Note, Section, Table, page, save_page


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


def test_a_page_holds_every_block_in_order_and_nests():
    table = Table(headings=("case", "GB/s"), rows=(("copy", "40.8"), ("triad", "38.1")), numeric=frozenset({"GB/s"}))
    text = page(
        "Bench of a CPU",
        [Section("Results", ("first words", table, Figure("<svg></svg>", "a curve"))), Section("Doubts", ("none",))],
        lead="two cores",
        foot="made by gpudoc",
    )
    reader = read(text)
    words = " ".join(t.strip() for t in reader.text if t.strip())
    order = ["Bench of a CPU", "two cores", "Results", "first words", "case", "copy", "38.1", "a curve", "Doubts"]
    places = [words.index(word) for word in order]
    assert places[1:] == sorted(places[1:])
    assert reader.tags.count("h2") == 2
    assert reader.tags.count("td") == 4


def test_foreign_text_cannot_become_markup():
    evil = "<script>alert(1)</script>\"'&"
    note = Note(kind='x" onload="y', title=evil, text=evil, points=(evil,), commands=(evil,))
    table = Table(headings=(evil,), rows=((evil,),))
    text = page(evil, [Section(evil, (evil, note, table, Figure("", evil)))], lead=evil, foot=evil)
    reader = read(text)
    assert "script" not in reader.tags
    assert not [name for name, _ in reader.attributes if name.startswith("on")]


def test_the_page_needs_nothing_outside_itself_and_knows_dark_and_narrow():
    text = page("t", [])
    assert "http://" not in text
    assert "https://" not in text
    assert "prefers-color-scheme:dark" in text
    assert "width=device-width" in text


def test_rows_must_fit_their_headings():
    with pytest.raises(ValueError, match="zip"):
        page("t", [Section("s", (Table(headings=("a", "b"), rows=(("1",),)),))])


def test_saving_where_no_folder_is_says_so(tmp_path):
    save_page(tmp_path / "p.html", "text")
    assert (tmp_path / "p.html").read_text() == "text"
    with pytest.raises(GpudocError, match="No such file"):
        save_page(tmp_path / "missing" / "p.html", "text")
