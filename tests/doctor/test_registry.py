from __future__ import annotations

from gpudoc.doctor.model import Setting
from gpudoc.doctor.registry import CATALOGUE, CAUSES, FINDERS


def test_every_cause_is_listed_once_with_its_sources_and_a_way_to_mend_it():
    assert len(CATALOGUE) == len(CAUSES)
    for cause in CAUSES:
        assert cause.title, cause.id
        assert cause.meaning, cause.id
        assert cause.why.endswith("."), cause.id
        assert cause.sources, cause.id
        assert all(source.startswith("https://") for source in cause.sources), cause.id
        assert cause.fix(Setting()), cause.id


def test_every_finder_looks_for_a_cause_of_the_catalogue():
    # the causes of the rows that `signatures` reads are tested with them
    assert not {finder.id for finder in FINDERS} - set(CATALOGUE) - {"signatures"}


def test_consequences_are_causes_too():
    for cause in CAUSES:
        assert not set(cause.explains) - set(CATALOGUE), cause.id
        assert cause.id not in cause.explains
