from __future__ import annotations

import types
import typing

from tools.handbook.api import api_pages, page_of


class Options(typing.TypedDict, total=False):
    """What may be asked."""

    quick: bool


def look(source: str | None = "here", **options: typing.Unpack[Options]) -> dict[str, object]:
    """Look at `source`."""


def test_a_page_has_the_words_the_signature_and_the_options_of_what_is_offered():
    module = types.ModuleType("offered", "From Python.\n\n    look()\n\nReturns a document.")
    module.look, module.Options, module.hidden, module.__all__ = look, Options, print, ["look"]
    text = page_of(module).text
    assert text.startswith("From Python.\n\n    look()\n\nReturns a document.")
    assert "## `look`" in text
    assert "def look(source: str | None = 'here', **options: typing.Unpack[Options]) -> dict[str, object]" in text
    assert "Look at `source`." in text
    assert "- `quick`: `bool`" in text
    assert "hidden" not in text


def test_the_page_is_there_as_far_as_python_offers_something():
    assert [page.place for page in api_pages()] in ([], ["api.md"])
