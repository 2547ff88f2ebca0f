"""When a run that stands still is reported and ended, on a clock of the test's own."""

from __future__ import annotations

import dataclasses

import pytest

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.facts.process import Frame
from gpudoc.train.ranks.pulse import BUILDING, COMPUTING, ENDED, EVALUATING, READING, SAVING, Beat
from gpudoc.train.watch.hang import Stand
from gpudoc.train.watch.watch import END_TIMES, FIRST_S, FLOOR_S, RankWatch, check


class Run:
    """One rank whose signs of life the test sets, looked at once a second of the test's clock."""

    def __init__(self, on_hang="report", frames=()):
        self.now = 0.0
        self.beat = Beat(rank=0, world=1, pid=7, step=0, doing=READING, beats=0, calls=0, call="")
        self.said, self.recorded = [], []
        self.watch = RankWatch(
            beats=lambda: [self.beat],
            stands=lambda beats: [Stand(beat=beat, frames=frames) for beat in beats],
            say=self.said.append,
            record=self.recorded.append,
            on_hang=on_hang,
            clock=lambda: self.now,
        )

    def stand(self, seconds, **change):
        """Change what the rank does, then let it stand for so long; whether the run was to be ended."""
        self.beat = dataclasses.replace(self.beat, beats=self.beat.beats + 1, **change)
        return self.stay(seconds)

    def stay(self, seconds):
        """Let it stand for longer."""
        for _ in range(round(seconds)):
            if self.watch.look():
                return True
            self.now += 1.0
        return False

    def step(self, times, seconds=1.0):
        for _ in range(times):
            self.stand(seconds, step=self.beat.step + 1, doing=READING)


def test_a_step_that_does_not_end_is_reported_once_then_that_it_goes_on():
    run = Run()
    run.step(20)
    run.stand(FLOOR_S, doing=COMPUTING)
    assert run.said == []
    run.stay(60)
    assert len(run.said) == 1
    assert "nothing has moved for 30 s in step 21 (a step usually takes 1 s)" in run.said[0]
    assert "gpudoc keeps waiting; --on-hang end would end the run" in run.said[0]
    assert run.recorded == []
    run.step(2)
    assert run.said[1:] == ["moving again after 1 min 30 s"]
    assert [hung.still_s for hung in run.recorded] == [90]


def test_what_is_usual_is_the_median_and_slow_steps_get_more_time():
    run = Run()
    run.step(7, seconds=12)
    assert run.watch.usual_s == pytest.approx(12)
    run.stand(120)
    assert run.said == []
    run.stay(5)
    assert len(run.said) == 1


@pytest.mark.parametrize("doing", [BUILDING, READING, COMPUTING])
def test_a_first_step_may_take_minutes_and_is_reported_at_last(doing):
    run = Run()
    run.stand(FIRST_S, doing=doing)
    assert run.said == []
    run.stay(2)
    assert len(run.said) == 1
    assert "usually" not in run.said[0]


def test_a_long_checkpoint_and_an_evaluation_that_goes_on_are_no_hang():
    run = Run(on_hang="end")
    run.step(20)
    assert not run.stand(200, doing=SAVING)
    for _ in range(30):
        assert not run.stand(20, doing=EVALUATING)
    run.step(5)
    assert run.said == []


def test_a_stall_that_was_over_before_makes_the_next_one_wait_longer():
    run = Run()
    run.step(20)
    run.stand(28)
    run.step(5)
    run.stand(50)
    assert run.said == []
    run.step(1)


def test_other_processes_begin_with_a_first_step():
    run = Run()
    run.step(20)
    run.stand(FIRST_S - 5, pid=8, step=3)
    assert run.said == []


def test_compiling_at_a_later_step_is_given_the_time_of_a_first_one():
    run = Run(frames=(Frame("compile_fx", "/site-packages/torch/_inductor/compile_fx.py", 1),))
    run.step(20)
    run.stand(FIRST_S - 20)
    assert run.said == []


def test_a_rank_that_has_ended_is_not_watched():
    run = Run(on_hang="end")
    run.step(20)
    assert not run.stand(1000, doing=ENDED)
    assert run.said == []


def test_end_reports_first_and_ends_when_it_still_stands():
    run = Run(on_hang="end")
    run.step(20)
    assert not run.stand(END_TIMES * FLOOR_S)
    assert len(run.said) == 1
    assert "--on-hang end: the run ends when it stands for 2 min 00 s" in run.said[0]
    assert run.stay(2)
    assert run.watch.hung.still_s == FLOOR_S


def test_end_leaves_a_run_alone_that_goes_on_in_time():
    run = Run(on_hang="end")
    run.step(20)
    assert not run.stand(END_TIMES * FLOOR_S)
    run.step(1)
    assert not run.stand(FLOOR_S)
    assert len(run.said) == 2


def test_without_ranks_there_is_nothing_to_judge():
    run = Run(on_hang="end")
    run.watch.beats = list
    run.now = 10_000
    assert not run.watch.look()


def test_another_word_after_on_hang_is_a_mistake():
    assert [check("report"), check("end")] == ["report", "end"]
    with pytest.raises(GpudocError, match="--on-hang wait") as caught:
        check("wait")
    assert caught.value.exit_code == ExitCode.NOT_DONE


def test_before_the_end_it_is_looked_at_once_more_and_one_that_works_by_now_goes_on():
    run = Run(on_hang="end")
    patience = [0.0]
    run.watch.patience_s = lambda stands: patience[0]
    run.step(20)
    run.stand(FLOOR_S + 1)
    assert len(run.said) == 1
    patience[0] = float("inf")
    assert not run.stay(10 * FLOOR_S)
    patience[0] = 0.0
    assert run.stay(FLOOR_S)


def test_one_that_may_stand_for_ever_is_never_reported():
    run = Run()
    run.watch.patience_s = lambda stands: float("inf")
    run.step(20)
    run.stand(10 * FIRST_S)
    assert run.said == []
