from __future__ import annotations

import pytest

from gpudoc.facts.readers.rank_lines import NOBODY, Speaker, read_speaker, read_step, read_time


@pytest.mark.parametrize(
    ("line", "speaker"),
    [
        ("[rank3]: KeyError: 'c'", Speaker(rank=3)),
        ("[default1]:[rank9]: KeyError: 'c'", Speaker(rank=9, local=1)),
        ("[default1]:KeyError: 'c'", Speaker(local=1)),
        ("5: [default1]:KeyError: 'c'", Speaker(local=1, node=5)),
        ("17: 2026-11-25 10:00:00,5 INFO step 3", Speaker(rank=17)),
        ("[rank: 2] Received SIGTERM: 15", Speaker(rank=2)),
        ("[1,7]<stderr>:Bus error", Speaker(rank=7)),
        ("node03: [rank5]: KeyError: 'x'", Speaker(rank=5, host="node03")),
        ("node03:812:900 [1] NCCL WARN x", Speaker(local=1, host="node03")),
        ("(RayTrainWorker pid=12, ip=10.0.0.3) [rank4]: x", Speaker(rank=4)),
        ("worker-4  | step 5", Speaker(rank=4)),
        ("2026-11-25 01:15:34,538 INFO [rank 3] step 1", Speaker(rank=3)),
        ("KeyError: 3", NOBODY),
        ("step 3: loss 2.0", NOBODY),
    ],
)
def test_who_wrote_a_line(line, speaker):
    assert read_speaker(line)[0] == speaker


def test_a_rank_in_the_middle_of_a_message_wrote_nothing():
    message = "the log of another job says, and we only quote it here to show what it looked like when " * 2
    assert read_speaker(f"{message}[rank7]: KeyError")[0] == NOBODY


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-25 10:00:01,500 INFO step 3",
        "[2026-11-25T10:00:01.5] step 3",
        "[E1125 10:00:01.500000 ProcessGroupNCCL.cpp:632] [Rank 3]",
        "W1125 10:00:01.500000 812 torch/distributed/elastic/agent.py:1] x",
    ],
)
def test_times_of_one_moment_are_one_number(line):
    assert read_time(line) == read_time("2026-11-25 10:00:01.5")


def test_a_time_without_a_date_is_on_the_day_of_the_line_before():
    day = read_time("2026-11-25 09:00:00")
    assert read_time("[10:00:00] step 3", day) == read_time("2026-11-25 10:00:00")
    assert read_time("loss 2.0, no time") is None


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("INFO step 120 loss 2", 120),
        ('{"step": 30, "loss": 2}', 30),
        ("iter: 7", 7),
        ("Epoch 3: Step [10/100]", 10),
        ("stepping back 3", None),
    ],
)
def test_the_step_of_a_line(line, step):
    assert read_step(line) == step
