from __future__ import annotations

from tests.fuzz import campaign, mutation
from tests.fuzz.entrances import ENTRANCES


def test_whatever_is_handed_over_ends_in_an_answer_or_a_sentence_without_control_characters_or_secrets():
    # time is measured by benchmarks/fuzz.py; here only a hang counts
    outcome = campaign.run(most=25 * len(ENTRANCES), patience_s=120.0, slow_s=120.0)
    assert set(outcome.cases) == {entrance.name for entrance in ENTRANCES}
    assert not outcome.broken


def test_a_number_names_a_case_for_ever():
    assert mutation.case(17) == mutation.case(17)
    assert len({mutation.case(number)[1] for number in range(40)}) > 30
