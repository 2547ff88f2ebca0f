"""Who is missing in a run that stands still, by signs of life and stacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoc.facts.process import Frame
from gpudoc.train.ranks.pulse import COMPUTING, LOGGING, READING, Beat
from gpudoc.train.watch import hang
from gpudoc.train.watch.hang import Stand, compiles, judge, users_frame

DATA = Frame("__getitem__", "/home/me/code/data.py", 12)
TORCH = Frame("all_reduce", "/usr/lib/python3/site-packages/torch/distributed/c10d.py", 99)


def beat(rank, *, doing=READING, calls=5, call="", world=4, step=7):
    return Beat(rank=rank, world=world, pid=100 + rank, step=step, doing=doing, beats=0, calls=calls, call=call)


def waiting(rank, **more):
    return Stand(beat=beat(rank, calls=6, call="sum on the host", **more), frames=(TORCH,))


def test_the_rank_that_does_not_come_is_named_with_its_line_and_what_the_others_wait_in():
    late = Stand(beat=beat(2), frames=(TORCH, DATA))
    told = judge([waiting(0), waiting(1), late, waiting(3)], 34.0, 0.12)
    assert (told.ranks, told.call) == ((2,), "collective 6 (sum on the host)")
    assert told.at == "code/data.py:12 in __getitem__()"
    assert told.say == (
        "nothing has moved for 34 s in step 8 (a step usually takes 120 ms): rank 2 of 4 reads its samples at "
        "code/data.py:12 in __getitem__(); ranks 0, 1, 3 wait for it in collective 6 (sum on the host)"
    )
    assert told.stacks[2].startswith("rank 2 (pid 102), step 8, reads its samples: code/data.py:12 in __getitem__() <")
    assert told.stacks[0].endswith("in collective 6 (sum on the host): distributed/c10d.py:99 in all_reduce()")
    assert told.document()["hang"]["ranks"] == [2]


def test_a_stopped_rank_is_named_though_it_stands_where_the_others_do():
    stopped = Stand(beat=beat(1, calls=6, call="sum on the host", world=2), is_stopped=True)
    told = judge([waiting(0, world=2), stopped], 30.0, 0.1)
    assert told.ranks == (1,)
    assert "rank 1 of 2 is stopped by a signal or a debugger (kill -CONT 101" in told.say


def test_the_line_of_a_loader_worker_is_that_of_its_rank():
    late = Stand(beat=beat(0, world=1, call=""), frames=(TORCH,), workers=((TORCH,), (DATA,)))
    told = judge([late], 31.0, 0.1)
    assert told.say.endswith("the process reads its samples at code/data.py:12 in __getitem__()")
    assert told.call == ""


def test_ranks_in_different_collectives_are_told_apart():
    one = Stand(beat=beat(0, calls=6, call="vote", world=2))
    told = judge([one, Stand(beat=beat(1, calls=6, call="gather", world=2))], 30.0, 0.1)
    assert told.ranks == ()
    assert (
        "different collectives: rank 0 of 2 is in collective 6 (vote); rank 1 of 2 is in collective 6 (gather)"
        in told.say
    )
    behind = Stand(beat=beat(1, calls=4, call="gather", world=2))
    told = judge([one, behind], 30.0, 0.1)
    assert told.ranks == (1,)
    assert "rank 1 of 2 is in collective 4 (gather); rank 0 waits for it in collective 6 (vote)" in told.say


@pytest.mark.parametrize(
    ("stands", "seen", "says"),
    [
        ([waiting(0), waiting(1)], (), "all 2 ranks of this machine wait for a rank of another machine"),
        ([waiting(3)], (), "rank 3 of 4 is in collective 6 (sum on the host) for a rank that says itself"),
        ([waiting(r) for r in range(4)], (), "every rank waits, for its device or the network; none is missing"),
        (
            [Stand(beat=beat(r, doing=LOGGING)) for r in range(4)],
            ("NCCL's flight recorder: Rank 3 did not come",),
            "NCCL's flight recorder: Rank 3 did not come",
        ),
    ],
)
def test_where_no_rank_is_missing_none_is_named(stands, seen, says):
    told = judge(stands, 30.0, None, seen)
    assert told.ranks == ()
    assert says in told.say
    assert "usually" not in told.say


def test_a_stack_that_nobody_may_read_is_said():
    told = judge([Stand(beat=beat(0, doing=COMPUTING, world=1))], 30.0, 0.1)
    assert told.stacks == ("rank 0 (pid 100), step 8, computes the step: its stack could not be read",)


def test_compiling_is_seen_in_the_stack_and_running_what_was_compiled_is_not():
    running = Frame("_fn", "/x/site-packages/torch/_dynamo/eval_frame.py", 1)
    making = Frame("compile_fx", "/x/site-packages/torch/_inductor/compile_fx.py", 1)
    assert not compiles([Stand(beat=beat(0), frames=(running, DATA))])
    assert compiles([waiting(0), Stand(beat=beat(1), frames=(running, making, DATA))])


def test_the_script_that_called_gpudoc_is_not_the_users_part_of_training():
    script = Frame("<module>", "/home/me/.venv/bin/gpudoc", 8)
    ours = Frame("run", hang.__file__, 30)
    assert users_frame((script, ours, TORCH)) is None
    assert users_frame((script, ours, DATA, TORCH)) == DATA


def test_in_a_script_the_line_that_asked_for_a_batch_is_told_where_no_worker_shows_another():
    inside = Frame(
        "drawn", str(Path(hang.__file__).parents[2] / "script" / "inside" / "_gpudoc_inside" / "batches.py"), 96
    )
    main = Frame("main", "/home/me/code/train.py", 40)
    asks = Stand(beat=beat(0, world=1), frames=(main, inside, TORCH))
    assert asks.frame == main
    # a forked worker has its parent's frames, too
    worker = (main, inside, TORCH, DATA)
    assert Stand(beat=beat(0, world=1), frames=(main, inside, TORCH), workers=(worker,)).frame == DATA


def test_a_collective_without_a_number_is_told_by_its_name():
    late = Stand(beat=beat(1, calls=4, world=2))
    told = judge([Stand(beat=beat(0, calls=5, call="all_reduce()", world=2)), late], 30.0, 0.1)
    assert told.say.endswith("rank 1 of 2 reads its samples; rank 0 waits for it in all_reduce()")
