from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import campaign, folder, mutation
from tests.fuzz.entrances import ENTRANCES


def test_whatever_is_handed_over_ends_in_an_answer_or_a_sentence_without_control_characters_or_secrets():
    # time is measured by campaigns/fuzz.py; here only a hang counts
    outcome = campaign.run(most=12 * len(ENTRANCES), patience_s=120.0, slow_s=120.0)
    assert set(outcome.cases) | set(outcome.shut) == {entrance.name for entrance in ENTRANCES}
    assert not outcome.broken


@pytest.mark.parametrize("entrance", ENTRANCES, ids=lambda entrance: entrance.name)
def test_the_whole_examples_are_read_so_that_what_is_near_them_comes_far(entrance, tmp_path, monkeypatch):
    if entrance.is_shut:
        pytest.skip(entrance.is_shut)
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"whole{entrance.ending}").write_bytes(entrance.seeds()[0])
    assert entrance.call(Path(f"whole{entrance.ending}"), entrance.modes[0]) in (0, 1)


def test_files_that_an_edit_may_change_are_written_below_their_folder_alone(tmp_path):
    held = {"a/b.log": b"x\n", "c.log": b"\n\x00", "../../d": b"", "/e": b"y"}
    folder.unpack(folder.pack(held), tmp_path / "job")
    found = {
        str(path.relative_to(tmp_path / "job")): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert found == {"a/b.log": b"x\n", "c.log": b"\n\x00", "d": b"", "e": b"y"}


def test_a_number_names_a_case_for_ever():
    assert mutation.case(17) == mutation.case(17)
    assert len({mutation.case(number)[1] for number in range(40)}) > 30
