from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoc.facts.readers.words import Words


@pytest.mark.parametrize(
    ("source", "anchors"),
    [
        ("driver is too old", ("driver is too old",)),
        (r"(?:lustre|gpfs) mount", (" mount",)),
        (r"\b(?:lustre|gpfs)\b", ("lustre", "gpfs")),
        (r"Xid\s*(?:\d+)?", ("xid",)),
        (r"colou?r of it", ("r of it",)),
        (r"\d+ ?%", ()),
        (r"a(?:bc)*d", ()),
        (r"error 80[34]", ("error 80",)),
        (r"\(12\).{0,4}Cannot", ("cannot",)),
        (r"(?!never)maybe so", ("maybe so",)),
    ],
)
def test_the_words_that_every_match_must_hold(source, anchors):
    assert Words(source).anchors == anchors


def search(words, text):
    return words.search(text, text.replace("\n", " ").lower())


def test_ruling_out_by_words_never_changes_the_answer():
    text = "The NVIDIA driver on\nyour system is too old (found version 11040)\nDRIVER too OLD"
    words = Words(r"driver (?:on|of) (?:your|this) system|never", "too old", r"\bfound version (\d+)")
    found = search(words, text)
    assert found[0] == "driver on\nyour system"
    assert [m[0] for m in words.finditer(text, text.replace("\n", " ").lower())] == [
        "driver on\nyour system",
        "too old",
        "found version 11040",
        "too OLD",
    ]
    assert search(Words("no such thing"), text) is None


PIECES = [
    "gpu",
    "memory",
    "out of",
    " ?",
    "(?:is|was) ",
    r"\d+",
    r".{0,5}",
    "[a-c]",
    r"\b",
    "x+",
    "y?",
    "(?:lost|gone)?",
    r"\.",
]


@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=6),
    st.text("gpu memory out of is was lost.xyabc123\n", max_size=60),
)
def test_a_match_always_holds_one_of_its_anchors(pieces, text):
    source = "".join(pieces)
    try:
        plain = re.compile(source.replace(" ?", r"\s*").replace(" ", r"\s+"), re.I | re.S | re.M)
    except re.error:
        return
    lines = "\n".join(" ".join(line.split()) for line in text.split("\n"))
    expected = plain.search(lines)
    found = search(Words(source), lines)
    assert (found is None) == (expected is None)


def test_a_blank_that_may_come_again_is_one_expression_that_every_python_knows():
    spaced = Words("line 3: +killed", "step *5")
    assert spaced.search("line 3:   Killed", "line 3:   killed")
    assert spaced.search("step5", "step5")
    assert not spaced.search("line 3:killed", "line 3:killed")


def test_anchors_of_several_ways_are_those_of_each_or_none():
    assert Words("first way", "second").anchors == ("first way", "second")
    assert Words("first way", r"\d+").anchors == ()
