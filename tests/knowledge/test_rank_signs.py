"""Rows of rank_signs.yaml and rank_kinds.yaml: each example shows its row, each id is known where it is named."""

from __future__ import annotations

from typing import get_args

import pytest

from gpudoc.doctor.ranks import rank_rows
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.facts.readers.job_log import RankSign, Role
from gpudoc.facts.readers.job_order import EndKind, EndOrder
from gpudoc.facts.readers.job_scan import SignWords
from gpudoc.facts.readers.rank_lines import read_speaker
from gpudoc.knowledge.tables import read_rows

ROWS = read_rows("rank_signs.yaml", "signs", RankSign)
WORDS = SignWords(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_each_example_shows_its_own_row(row):
    assert row.role in get_args(Role)
    assert row.source.startswith("https://")
    assert row.examples
    for example in row.examples:
        found = WORDS.find(example, read_speaker(example)[1])
        assert found is not None
        assert found[0].id == row.id
        assert WORDS.words.search(example.encode())


def test_ids_are_unique_and_causes_are_those_of_the_catalogue():
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert {row.cause for row in ROWS if row.cause} <= set(CATALOGUE)
    assert {kind.cause for kind in rank_rows().kinds.values() if kind.cause} <= set(CATALOGUE)


def test_every_kind_and_order_that_a_reader_names_has_a_row():
    assert set(rank_rows().kinds) == set(get_args(EndKind))
    assert set(rank_rows().orders) == set(get_args(EndOrder))
