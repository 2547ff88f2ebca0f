"""What an agent gets of a document in few words."""

from gpudoc.agents.answer import shorten

FOUND = {"schema": "gpudoc.fix.v1", "accepted": [{"rewrite": "anomaly-off", "why": ""}], "launches": 5}


def test_a_diff_comes_whole_or_not_at_all():
    diff = "--- a/train.py\n" + "+x = 1\n" * 100
    short = shorten({**FOUND, "diff": diff})
    assert short["diff"] == diff
    assert short["left_out"] == ["launches"]
    long = shorten({**FOUND, "diff": diff * 10})
    assert "diff" not in long
    assert long["left_out"] == ["launches", "diff"]
    assert long["accepted"] == [{"rewrite": "anomaly-off"}]
