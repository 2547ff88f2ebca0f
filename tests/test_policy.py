"""The names of a part of the activations, and which keeps less."""

import pytest

from gpudoc.policy import in_words, num_blocks, of_blocks, parse, spares_more


@pytest.mark.parametrize("text", ["blocks:0", "blocks:", "blocks:-2", "half", "selective:3", "Blocks:2"])
def test_what_is_no_policy_is_refused_by_its_name(text):
    with pytest.raises(ValueError, match=f"'{text}' is neither"):
        parse(text)


def test_a_policy_says_how_many_blocks_it_computes_again_where_it_names_a_number():
    assert num_blocks(parse("blocks:12")) == 12
    assert num_blocks(of_blocks(3)) == 3
    assert [num_blocks(policy) for policy in (True, False, "selective")] == [None, None, None]


def test_every_block_spares_more_than_a_part_and_a_part_more_than_nothing():
    assert spares_more(True, "selective")
    assert spares_more("blocks:2", False)
    assert not spares_more("blocks:2", "selective")
    assert not spares_more(False, True)


def test_words_name_the_number_out_of_all_where_it_is_known():
    assert in_words("blocks:2", 8) == "activation checkpointing of 2 of 8 blocks"
    assert in_words("blocks:2") == "activation checkpointing of 2 blocks"
    assert in_words("selective", 8) == "selective activation checkpointing"
    assert in_words(True) == "activation checkpointing of every block"
