from gpudoc.doctor.causes.sign import quote, words
from gpudoc.facts.readers import read


def test_evidence_of_a_long_line_shows_the_words_that_matter():
    mention = read("first\n" + "x" * 500 + " it broke " + "y" * 500).text.find(words("it broke"))
    assert mention is not None
    seen = quote(mention)
    assert seen.origin == "line 2"
    assert "it broke" in seen.value
    assert len(seen.value) <= 200


def test_the_same_words_are_compiled_once():
    assert words("a b", "c") is words("a b", "c")
