from __future__ import annotations

from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import words
from gpudoc.facts.readers.model import Line, Text

DOG, BARKS, NIGHT = words(r"\bdog\b"), words(r"\bbark\w*"), words(r"\bnight\b")


def text(said):
    return Text(tuple(Line(i, line) for i, line in enumerate(said.split("\n"), 1)))


def test_both_words_of_one_sentence_are_found_in_any_order():
    assert together(text("The cat sleeps. At 3.5 h the dog barks at it."), DOG, BARKS)
    assert together(text("What barks there? Some bark is the dog"), DOG, BARKS)


def test_words_of_two_sentences_do_not_belong_together():
    assert together(text("The dog sleeps. The bark of a tree is brown."), DOG, BARKS) is None
    assert together(text("- the dog\n- The bark"), DOG, BARKS) is None
    assert together(text("the dog\n\nthe bark"), DOG, BARKS) is None


def test_a_line_that_was_wrapped_is_one_sentence():
    assert together(text("this is the dog that always\nbarks"), DOG, BARKS)


def test_a_later_sentence_counts_when_the_first_does_not_fit():
    found = together(text("A dog sleeps.\nOne dog barks."), DOG, BARKS)
    assert found is not None
    assert found.line.number == 2


def test_a_veto_counts_in_its_own_sentence_only():
    assert together(text("At night the dog barks."), DOG, BARKS, without=NIGHT) is None
    assert together(text("It is night. The dog barks."), DOG, BARKS, without=NIGHT)


def test_chinese_sentences_end_at_their_own_stops():
    cat = words("猫")
    assert together(text("猫睡了。dog来了"), DOG, cat) is None
    assert together(text("猫看 dog。好"), DOG, cat)


def test_what_is_far_away_without_an_end_does_not_count():
    assert together(text("dog " + "x, " * 300 + "barks"), DOG, BARKS) is None
