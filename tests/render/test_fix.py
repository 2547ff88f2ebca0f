"""The screen of fix says what was looked at, and no more."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpudoc.fix.document import document
from gpudoc.fix.model import Claim, HotLine, PaddedInput, RunEvidence
from gpudoc.fix.proof import GainSpan
from gpudoc.render.fix import as_text
from tests.fix.test_run import result_of
from tests.script.test_advice import look


def test_a_look_that_came_to_no_evaluation_claims_nothing_of_one():
    own = (HotLine(Path("/x/train.py"), 7, 0.54),)
    found = replace(
        result_of(Path("/x/train.py"), "a\n", "a\n"), accepted=(), evidence=RunEvidence(hot=own, own=own), launches=1
    )
    text = as_text(found)
    assert text.startswith("No change found.\n1 launch in ")
    assert "only the kinds of waste that it knows" in text
    assert "only if these steps reached them" in text
    assert "54%  /x/train.py:7" in text
    assert text.endswith("next     gpudoc tune -- python train.py")


def test_a_loop_of_short_passes_that_fix_cannot_change_is_the_first_thing_said(tmp_path, monkeypatch):
    train = tmp_path / "train.py"
    train.write_text("for x in rows:\n    for i in range(900):\n        a[i] = b[i] * 2  # \x1b[31m\n    step(x)\n")
    hot = (HotLine(train, 1, 1.0), HotLine(train, 3, 0.8), HotLine(train, 2, 0.01), HotLine(train, 4, 0.19))
    seen = RunEvidence(hot=hot, own=hot[1:], passes=((train, 3, 900.0), (train, 2, 901.0), (train, 4, 1.0)))
    found = replace(result_of(train, "a\n", "a\n"), accepted=(), evidence=seen, look=look(), launches=1)
    monkeypatch.chdir(tmp_path)
    text, told = as_text(found), document(found)
    assert text.startswith("No change found, but 80% of a step goes into many short passes of a loop.\n")
    assert "80%  train.py:2  900 passes in a step" in text
    # what a file holds is not sent to the terminal as it is
    assert "a[i] = b[i] * 2  # \\x1b[31m" in text
    (loop,) = told["loops"]
    assert (loop["file"], loop["line"], loop["last_line"], loop["share"], loop["passes"]) == (
        "train.py",
        2,
        3,
        0.8,
        900,
    )
    assert loop["pass_s"] == pytest.approx(0.8 * look().step_s / 900)
    assert document(replace(found, accepted=result_of(train, "a\n", "b\n").accepted))["loops"] == ()


def test_padding_that_fix_cannot_take_away_is_said_with_the_line_that_gives_it():
    seen = RunEvidence(hot=(), padded=(PaddedInput(Path("/x/train.py"), 9, 0.41),))
    found = replace(result_of(Path("/x/train.py"), "a\n", "a\n"), accepted=(), evidence=seen, launches=1)
    text = as_text(found)
    assert text.startswith("No change found, but 41% of what the model gets is padding.\n")
    assert "41% of what /x/train.py:9 gives to the model is padding" in text
    assert document(found)["padding"] == ({"file": "/x/train.py", "line": 9, "share": 0.41},)


def test_a_proved_change_comes_with_its_diff_its_proof_and_what_to_type():
    text = as_text(result_of(Path("/x/train.py"), "a = 1\n", "a = 2\n"))
    assert "Anomaly detection is on at /x/train.py:1: a proved change." in text
    assert "-a = 1\n+a = 2" in text
    assert text.endswith("next     gpudoc fix --write -- python train.py")


def test_a_patch_that_was_written_comes_with_the_command_that_applies_it():
    found = result_of(Path("/x/train.py"), "a = 1\n", "a = 2\n")
    text = as_text(replace(found, options=replace(found.options, patch=Path("my fix.patch"))))
    assert text.endswith("next     patch -p1 < 'my fix.patch'")


def test_the_document_says_where_the_steps_spend_their_time_whatever_was_found():
    found = replace(result_of(Path("/x/train.py"), "a\n", "a\n"), accepted=())
    told = document(replace(found, evidence=RunEvidence(hot=(HotLine(Path("/x/train.py"), 7, 0.54321),)), look=look()))
    assert told["lines"] == ({"file": "/x/train.py", "line": 7, "share": 0.5432},)
    assert (told["steps"], told["wait_share"]) == (look().steps, round(look().wait_share, 4))
    nothing = document(found)
    assert (nothing["lines"], nothing["steps"], nothing["wait_share"]) == ((), 0, None)


def test_the_document_of_another_training_claims_no_equal_one():
    found = result_of(Path("/x/train.py"), "a\n", "b\n")
    faster = replace(found.accepted[0], gain=GainSpan(2.0, 1.9, 2.1), why="the training is another one")
    other = replace(faster, claim=Claim.CHANGES)
    (equal,), (changed,) = (document(replace(found, lost=(one,)))["lost"] for one in (faster, other))
    assert "bit-identical" in equal["proof"]
    assert (changed["proof"], changed["claim"]) == ("", "changes")
