from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpudoc.knowledge import signature_rows
from gpudoc.knowledge.signature_rows import OwnRows, RowError, load_folder, vocabulary

FOLDER = Path(signature_rows.__file__).parent / "signatures"
GOOD = """
- id: x
  cause: gpu_lost
  any: [it broke]
  confidence: 0.8
  source: https://example.org
"""


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER, tmp_path / "signatures")


def last(folder, row):
    with (folder / f"{signature_rows.FAMILIES[-1]}.yaml").open("a", encoding="utf-8") as file:
        file.write(row)
    return load_folder(folder)[-1]


def test_what_is_used_holds_everything_but_the_examples():
    with_examples = load_folder(FOLDER, examples=True)
    assert [row.id for row in OwnRows()] == [row.id for row in with_examples]
    assert [(row.any, row.all, row.unless, row.confidence, row.source) for row in OwnRows()] == [
        (row.any, row.all, row.unless, row.confidence, row.source) for row in with_examples
    ]
    assert not any(row.examples or row.others for row in OwnRows())
    assert all(row.examples for row in with_examples)


def test_a_row_may_be_as_short_as_its_message(folder):
    row = last(folder, GOOD)
    assert (row.id, row.any, row.confidence, row.severity) == ("x", ("it broke",), 0.8, "broken")


def test_a_group_is_one_pattern_or_several_and_a_name_stands_for_its_list(folder):
    row = last(folder, GOOD + "  all: [gpu, [card, board], $docker]\n  unless: [on purpose, $docker]\n")
    assert row.all[:2] == (("gpu",), ("card", "board"))
    assert row.all[2] == vocabulary("docker")
    assert row.unless == ("on purpose", *vocabulary("docker"))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (GOOD + "  sevrity: info\n", r"speed\.yaml: x: unknown key sevrity"),
        (GOOD.replace("  source: https://example.org\n", ""), r"speed\.yaml: x: lacks source"),
        (GOOD + "  unless: [$dokcer]\n", r"speed\.yaml: x: no list \$dokcer in vocabulary\.yaml"),
        (
            GOOD.replace("it broke", "it broke: twice"),
            r"speed\.yaml: x: \{'it broke': 'twice'\} is not text; put it in",
        ),
        (GOOD + "  all: [[gpu, {card: 7}]]\n", r"speed\.yaml: x: \{'card': '7'\} is not text"),
    ],
)
def test_a_row_that_is_wrong_is_named_with_its_file(folder, row, said):
    with pytest.raises(RowError, match=said):
        last(folder, row)
