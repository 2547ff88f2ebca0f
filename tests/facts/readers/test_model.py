from __future__ import annotations

from gpudoc.facts.readers.model import CleanText, Line
from gpudoc.facts.readers.words import Words
from gpudoc.patterns import Pattern

TEXT = CleanText((Line(1, "The GPU   has"), Line(2, "fallen off"), Line(5, "the bus today")))


def test_a_sentence_wrapped_over_lines_is_found_and_cites_where_it_begins():
    found = TEXT.find(Words("has fallen off the bus"))
    assert found.line.number == 1
    assert found[0] == "has\nfallen off\nthe bus"


def test_every_place_is_found_up_to_a_limit():
    assert [m.line.number for m in TEXT.find_all(Pattern("(?i)the"))] == [1, 5]
    assert [m.line.number for m in TEXT.find_all(Words("the"))] == [1, 5]
    assert len(list(TEXT.find_all(Pattern("."), most=4))) == 4


def test_what_is_not_there_is_none_and_an_expression_without_its_words_is_not_even_compiled():
    assert TEXT.find(Words("uncorrectable")) is None
    absent, there = Pattern(r"(?i)\w+ uncorrectable"), Pattern(r"(?i)\w+ HAS")
    assert TEXT.find(absent) is None
    assert TEXT.find(there)[0] == "GPU has"
    assert (absent.is_compiled, there.is_compiled) == (False, True)


def test_an_origin_names_file_and_line():
    assert Line(4, "", "a.log").origin == "a.log line 4"
    assert Line(0, "", "torch").origin == "torch"


def test_a_latin_word_ends_where_chinese_begins():
    text = CleanText((Line(1, "训练时GPU利用率低于20%的时候"), Line(2, "plain line")))
    assert text.find(Words(r"\bgpu\b")) is not None
    assert text.find(Words(r"\b20%")).line.text == "训练时GPU利用率低于20%的时候"
    assert text.find(Words("plain line")).line.number == 2


def test_a_line_follows_another_of_the_same_input_nearby():
    first = Line(10, "a", "x.log")
    assert Line(12, "b", "x.log").follows(first, within=2)
    assert Line(1, "b").follows(None, within=2)
    assert not Line(13, "b", "x.log").follows(first, within=2)
    assert not Line(11, "b", "y.log").follows(first, within=2)
    assert not Line(3, "b", "x.log").follows(first, within=2)


class _Counted(Words):
    """Words that count how often a text was searched for them."""

    asked = 0

    def search(self, text):
        _Counted.asked += 1
        return super().search(text)


def test_a_text_is_searched_once_for_words_that_many_rows_ask_for():
    text = CleanText((Line(1, "CUDA out of memory"),))
    words, others = _Counted("out of memory"), _Counted("no such words")
    assert [text.find(words)[0], text.find(words)[0]] == ["out of memory"] * 2
    assert text.find(others) is text.find(others) is None
    assert _Counted.asked == 2
