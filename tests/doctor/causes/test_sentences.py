import pytest

from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import words
from gpudoc.facts.readers.model import CleanText, Line

DOG, BARKS, NIGHT = words(r"\bdog\b"), words(r"\bbark\w*"), words(r"\bnight\b")


def text(said):
    return CleanText(tuple(Line(i, line) for i, line in enumerate(said.split("\n"), 1)))


CAT = words("猫")
TOGETHER = [
    ("The cat sleeps. At 3.5 h the dog barks at it.", (DOG, BARKS), {}, 1),
    ("What barks there? Some bark is the dog", (DOG, BARKS), {}, 1),
    ("The dog sleeps. The bark of a tree is brown.", (DOG, BARKS), {}, None),
    ("- the dog\n- The bark", (DOG, BARKS), {}, None),
    ("the dog\n\nthe bark", (DOG, BARKS), {}, None),
    # a line that was wrapped is one sentence
    ("this is the dog that always\nbarks", (DOG, BARKS), {}, 1),
    # a later sentence counts when the first does not fit
    ("A dog sleeps.\nOne dog barks.", (DOG, BARKS), {}, 2),
    # a veto counts in its own sentence only
    ("At night the dog barks.", (DOG, BARKS), {"without": NIGHT}, None),
    ("It is night. The dog barks.", (DOG, BARKS), {"without": NIGHT}, 1),
    # Chinese sentences end at their own stops
    ("猫睡了。dog来了", (DOG, CAT), {}, None),
    ("猫看 dog。好", (DOG, CAT), {}, 1),
    ("dog " + "x, " * 300 + "barks", (DOG, BARKS), {}, None),
]


@pytest.mark.parametrize(("said", "which", "how", "line"), TOGETHER)
def test_words_belong_together_in_one_sentence(said, which, how, line):
    found = together(text(said), *which, **how)
    assert (found and found.line.number) == line
