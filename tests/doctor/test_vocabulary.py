from __future__ import annotations

import pytest

from gpudoc.doctor.causes.sign import Listed, as_words
from gpudoc.facts.readers import read
from gpudoc.facts.readers.words import Written
from gpudoc.knowledge.signature_rows import RowError


def test_a_list_is_searched_by_its_name():
    docker = Listed("docker")
    assert read("we run it in\ndocker here").text.find(docker).line.number == 2
    assert read("we run it here").text.find(docker) is None


def test_a_list_that_does_not_exist_is_told_at_the_first_search():
    with pytest.raises(RowError, match=r"no list \$dokcer in vocabulary\.yaml"):
        read("docker").text.find(Listed("dokcer"))


def test_a_literal_and_an_expression_are_searched_side_by_side():
    either = as_words(("a.b", r"re:c\d+"))
    assert either.search(Written("x A.B"))[0] == "A.B"
    assert either.search(Written("x c42"))[0] == "c42"
    assert either.search(Written("x axb c")) is None
