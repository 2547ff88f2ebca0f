from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoc.facts.readers.words import Words, Written, anchors_of
from gpudoc.knowledge import signature_rows
from gpudoc.patterns import Pattern


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
        (r"(?im)^error: (?:a|b)", ("error: ",)),
        (r"(?i:lost|gone) (?-i:GPU)", ("lost", "gone")),
        (r"(\w+) again (?P=name) \u4e00beef", (" again ",)),
        (r"x(?:yes){,2}", ()),
        (r"so \x1bbad: it", (": it",)),
        (r"(?:so \u4e00deaf)+", ("so ",)),
        (r"go{100,200} b", ()),
    ],
)
def test_the_words_that_every_match_must_hold(source, anchors):
    assert Words(source).anchors == anchors


def test_ruling_out_by_words_never_changes_the_answer():
    text = "The NVIDIA driver on\nyour system is too old (found version 11040)\nDRIVER too OLD"
    words = Words(r"driver (?:on|of) (?:your|this) system|never", "too old", r"\bfound version (\d+)")
    found = words.search(Written(text))
    assert found[0] == "driver on\nyour system"
    assert [m[0] for m in words.finditer(Written(text))] == [
        "driver on\nyour system",
        "too old",
        "found version 11040",
        "too OLD",
    ]
    assert Words("no such thing").search(Written(text)) is None


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


def test_a_match_reads_what_was_written():
    text = Written("saw Model-A in Place_B: İSTANBUL ERROR 7")
    (found,) = Words(r"\bin (?P<where>\S+): (\w+) error (\d)(x)?").finditer(text)
    assert found[0] == "in Place_B: İSTANBUL ERROR 7"
    assert found.groups() == ("Place_B", "İSTANBUL", "7", None)
    assert found.groupdict() == {"where": "Place_B"}
    assert found.span() == (12, 40)


def test_small_letters_stand_where_the_written_ones_do():
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    assert len(Written(every).folded) == len(every)


def test_signs_of_an_expression_keep_their_meaning_in_small_letters():
    text = Written("A1 -- ABC")
    assert [m[0] for m in Words(r"\W+", r"\D\d\S*", r"[A-C]+\Z").finditer(text)] == ["A1", " -- ", "ABC"]
    assert Words(r"\bAB+C").search(text).span() == (6, 9)
    assert Words(r"\bBC").search(text) is None


@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=6),
    st.text("gpu memory out of is was lost.xyABC123\n", max_size=60),
)
def test_ruled_out_is_only_what_does_not_match_and_the_place_is_the_same(pieces, text):
    source = "".join(pieces)
    try:
        plain = re.compile(source.replace(" ?", r"\s*").replace(" ", r"\s+"), re.I | re.S | re.M)
    except re.error:
        return
    lines = "\n".join(" ".join(line.split()) for line in text.split("\n"))
    expected = plain.search(lines)
    found = Words(source).search(Written(lines))
    assert (found and found.span()) == (expected and expected.span())
    assert expected is None or Written(lines).may_hold(anchors_of(source))


def test_no_expression_of_doctor_is_ruled_out_where_it_matches():
    import gpudoc.doctor.registry

    assert gpudoc.doctor.registry.FINDERS
    folder = Path(signature_rows.__file__).with_name("signatures")
    rows = signature_rows.load_folder(folder, examples=True)
    texts = [Written("\n".join(text for row in rows[start::9] for text in row.examples)) for start in range(9)]
    modules = [
        vars(module) for name, module in sys.modules.items() if name.startswith(("gpudoc.doctor", "gpudoc.facts"))
    ]
    patterns = [one for module in modules for one in module.values() if isinstance(one, Pattern)]
    guarded = [one for one in patterns if anchors_of(one.source)]
    assert len(guarded) > 100
    for pattern in guarded:
        for text in texts:
            if not text.may_hold(anchors_of(pattern.source)):
                assert pattern.search(text.flat) is None, pattern.source


def test_a_blank_that_may_come_again_is_one_expression_that_every_python_knows():
    spaced = Words("line 3: +killed", "step *5")
    assert spaced.search(Written("line 3: Killed"))
    assert spaced.search(Written("step5"))
    assert not spaced.search(Written("line 3:killed"))


def test_anchors_of_several_ways_are_those_of_each_or_none():
    assert Words("first way", "second").anchors == ("first way", "second")
    assert Words("first way", r"\d+").anchors == ()
