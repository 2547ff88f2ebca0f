"""README's screens are what the program prints; its picture needs nothing from elsewhere; what it must not say."""

import re
import sys
import xml.etree.ElementTree as ET

import pytest
from rich.text import Text

from tests.test_docs import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import picture

README = (ROOT / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def screen():
    return picture.run("paste")


def test_the_pasted_error_in_the_readme_is_answered_as_shown(screen):
    assert picture.with_screen(README, "paste", screen.plain) == README, "run: python tools/picture.py --write"


def test_the_picture_is_of_that_screen_and_fetches_nothing(screen):
    kept = (ROOT / "docs" / "pictures" / "paste.svg").read_text("utf-8")
    assert kept == picture.drawing("paste", screen), "run: python tools/picture.py --write"
    addresses = re.findall(r"https?://[^\s\"<)]+", re.sub(r"<text.*?</text>", "", kept, flags=re.DOTALL))
    assert set(addresses) <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}
    words = " ".join("".join(one.itertext()) for one in ET.fromstring(kept).iter("{http://www.w3.org/2000/svg}text"))
    assert "gpudoc" in words.replace("\u00a0", " ")
    assert "doctor" in words.replace("\u00a0", " ")


def test_a_screen_is_put_where_its_mark_stands_and_nowhere_else():
    text = "a\n<!-- screen: paste -->\nold\n<!-- end -->\nb\n<!-- screen: job -->\n<!-- end -->\n"
    new = picture.with_screen(text, "paste", "one  \n\\1 two")
    shown = "```text\n$ gpudoc doctor error.txt\none\n\\1 two\n```\n"
    assert new == f"a\n<!-- screen: paste -->\n{shown}<!-- end -->\nb\n<!-- screen: job -->\n<!-- end -->\n"
    with pytest.raises(AssertionError, match="no place for tune"):
        picture.with_screen(text, "tune", "")


def test_brackets_and_colours_of_a_screen_are_drawn():
    markup = picture.drawing("paste", Text.from_ansi("\x1b[31m[driver_too_old, 99% sure]\x1b[0m"))
    assert "[driver_too_old,&#160;99%&#160;sure]" in markup


def test_every_screen_has_its_place_and_was_run():
    blocks = dict(re.findall(r"<!-- screen: (\w+) -->\n(.*?)<!-- end -->", README, re.DOTALL))
    assert set(blocks) == set(picture.ALL)
    for name, block in blocks.items():
        assert block.startswith(f"```text\n$ {picture.ALL[name].command}\n")
        assert len(block.splitlines()) > 6


def test_the_readme_is_short_and_installs_nothing_by_a_name_that_is_not_ours():
    assert len(README.splitlines()) <= 150
    assert not re.search(r"(pip|pipx|uv tool|uvx)\s+(install|run)?\s*gpudoc\b", README)
    assert "uvx gpudoc" not in README
