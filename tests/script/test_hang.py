"""When a script stands still: judged by its stacks and what it uses, since it gives no signs between its steps."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpudoc.facts.process import Frame
from gpudoc.script import hang
from gpudoc.script.hang import HangWatch, Patience, gone, living, look_at
from gpudoc.train.ranks import pulse as signs
from gpudoc.train.ranks.pulse import OWN_CODE, Beat, open_pulse
from gpudoc.train.watch import stacks
from gpudoc.train.watch.hang import Stand, judge
from gpudoc.train.watch.watch import END_TIMES, FIRST_S, FLOOR_S
from tests.waiting import wait_until

MAIN = Frame("main", "/home/me/code/train.py", 40)
EVAL = Frame("evaluate", "/home/me/code/train.py", 60)
REDUCE = Frame("all_reduce", "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py", 3000)
WRAPPER = Frame("wrapper", "/usr/lib/python3/site-packages/torch/distributed/c10d_logger.py", 83)
BACKWARD = Frame("_engine_run_backward", "/usr/lib/python3/site-packages/torch/autograd/graph.py", 800)
FOR_EVER = float("inf")


def beat(pid, *, rank=0, world=1, call="", beats=40):
    return Beat(rank=rank, world=world, pid=pid, step=20, doing=OWN_CODE, beats=beats, calls=0, call=call)


@pytest.fixture
def process():
    """Starts a Python that does what it is told, as a rank's process would."""
    started = []

    def start(code):
        code += "\nprint(flush=True)\nimport time; time.sleep(600)"
        started.append(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE))
        started[-1].stdout.readline()
        return started[-1].pid

    yield start
    for one in started:
        one.kill()
        one.communicate()


@pytest.fixture
def busy(process):
    return process(
        "import threading\ndef spin():\n  while True: pass\nthreading.Thread(target=spin, daemon=True).start()"
    )


@pytest.fixture
def idle(process):
    return process("")


class Looked:
    """A patience on a clock of the test's, in which so much time passes between two looks."""

    def __init__(self, pause_s=8.0):
        self.now, self.pause_s = 0.0, pause_s
        self.patience = Patience(lambda: self.now)

    def look(self, *stands):
        self.now += self.pause_s
        return self.patience(stands)


def used(pid):
    import psutil

    return psutil.Process(pid).cpu_times().user


def test_a_process_that_uses_nothing_at_one_line_is_waited_for_no_longer(idle):
    looked = Looked()
    stand = Stand(beat=beat(idle), frames=(MAIN,))
    assert [looked.look(stand), looked.look(stand)] == [FOR_EVER, 0.0]


def test_an_evaluation_that_moves_on_is_at_work_for_ever_and_one_that_stops_is_not(idle):
    looked = Looked()
    first, second = (Stand(beat=beat(idle), frames=(MAIN, frame)) for frame in (EVAL, BACKWARD))
    assert [looked.look(stand) for stand in (first, second, first, first)] == [FOR_EVER] * 3 + [0.0]


def test_one_that_computes_at_one_line_has_minutes(busy):
    looked = Looked(pause_s=0.001)
    stand = Stand(beat=beat(busy), frames=(MAIN,))
    before = used(busy)
    looked.look(stand)
    wait_until(lambda: used(busy) > before + 0.1)
    assert looked.look(stand) == FIRST_S


@pytest.mark.parametrize("file", ["/x/torch/serialization.py", "/x/torch/_inductor/compile_fx.py"])
def test_saving_and_compiling_have_minutes(idle, file):
    looked = Looked()
    stand = Stand(beat=beat(idle), frames=(MAIN, Frame("f", file, 1)))
    looked.look(stand)
    assert looked.look(stand) == FIRST_S


def test_a_rank_that_uses_nothing_is_named_at_once_also_where_another_spins_for_it(idle, busy):
    looked = Looked(pause_s=0.001)
    late = Stand(beat=beat(idle, rank=1, world=2), frames=(MAIN,))
    spins = Stand(beat=beat(busy, world=2, call="all_reduce()"), frames=(MAIN, REDUCE))
    waits = Stand(beat=beat(idle, rank=1, world=2, call="all_reduce()"), frames=(MAIN, REDUCE))
    before = used(busy)
    looked.look(late, spins)
    wait_until(lambda: used(busy) > before + 0.1)
    assert looked.look(late, spins) == 0.0
    # one that computes while the others wait for it is at work
    assert looked.look(waits, spins) == FOR_EVER
    before = used(busy)
    wait_until(lambda: used(busy) > before + 0.1)
    assert looked.look(waits, spins) == FIRST_S


def test_without_stacks_what_it_uses_decides(idle):
    looked = Looked()
    stand = Stand(beat=beat(idle))
    assert [looked.look(stand), looked.look(stand)] == [FOR_EVER, 0.0]


def test_the_collective_is_read_from_the_stack_and_the_rank_behind_is_named(monkeypatch):
    frames = {0: (MAIN, WRAPPER, REDUCE), 1: (MAIN,), 2: (MAIN, BACKWARD), 3: (MAIN, REDUCE, EVAL)}
    monkeypatch.setattr(stacks, "_looks", lambda pids: {pid: frames[pid] for pid in pids if pid in frames})
    stands = look_at([beat(rank, rank=rank, world=4) for rank in frames])
    assert [stand.beat.call for stand in stands] == ["all_reduce()", "", "backward()", ""]
    told = judge(stands[:3], 40.0, 0.1)
    assert told.ranks == (1,)
    assert (
        "rank 1 of 4 runs its own code at code/train.py:40 in main(); ranks 0, 2 wait for it in all_reduce()"
        in told.say
    )
    assert told.stacks[2].startswith("rank 2 (pid 2), step 21, in backward(): autograd/graph.py:800")
    # where no stack tells, the one that came to fewer batches is the one
    both = look_at([beat(1, rank=0, world=2, beats=41), beat(1, rank=1, world=2, beats=40)])
    assert judge(both, 40.0, 0.1).ranks == (1,)


def test_who_has_ended_is_told_of_and_is_not_watched(tmp_path, monkeypatch):
    monkeypatch.setenv(signs.FOLDER, str(tmp_path))
    here, other = open_pulse(0, 2), open_pulse(1, 2)
    for one in (here, other):
        one.begin(20)
    assert [one.rank for one in living(tmp_path)] == [0, 1]
    assert gone(tmp_path) == ()
    other.now(signs.ENDED)
    assert gone(tmp_path) == ("rank 1 of 2 has ended after step 20",)
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    # not yet waited for
    other._words[signs._PID] = ended.pid
    assert [one.rank for one in living(tmp_path)] == [0]
    ended.wait()


class TwoRanks:
    """Two processes that use nothing, as ranks of a command that made 20 steps of a second each; on a clock of its own.

    Then rank 1 stands in the script's own code, and rank 0 waits for it in a collective.
    """

    def __init__(self, folder, on_hang, pids):
        self.now, self.standing = 0.0, HangWatch(folder, on_hang)
        self.watch = self.standing.watch(lambda: self.now)
        self.ranks = [open_pulse(rank, 2) for rank in range(2)]
        for step in range(20):
            for rank, pid in zip(self.ranks, pids, strict=True):
                rank._words[signs._PID] = pid
                rank.begin(step)
                rank.now(OWN_CODE)
            assert not self.look()

    def look(self):
        self.now += 1.0
        return self.watch.look()

    def said(self):
        lines = []
        while not self.standing._said.empty():
            lines += self.standing._said.get().splitlines()
        return lines

    def seconds_until(self, found, most):
        """The seconds until `found(whether to end)` holds; None where that is not so within `most`."""
        began = self.now
        while self.now - began < most:
            if found(self.look()):
                return self.now - began
        return None


@pytest.fixture
def two_ranks(tmp_path, monkeypatch, process):
    monkeypatch.setenv(signs.FOLDER, str(tmp_path))
    pids = [process(""), process("")]
    frames = dict(zip(pids, [(MAIN, REDUCE), (MAIN,)], strict=True))
    monkeypatch.setattr(stacks, "_looks", lambda asked: {pid: frames[pid] for pid in asked})
    return lambda on_hang: TwoRanks(tmp_path, on_hang, pids)


def test_two_ranks_that_stand_are_reported_within_a_minute_and_waited_for(two_ranks):
    here = two_ranks("report")
    after_s = here.seconds_until(lambda _: here.watch.hung is not None, most=60)
    assert after_s is not None
    assert after_s > FLOOR_S
    told = here.said()
    assert told[0].startswith("nothing has moved for ")
    assert "rank 1 of 2 runs its own code at code/train.py:40 in main(); rank 0 waits for it in all_reduce()" in told[0]
    assert told[-1] == "  gpudoc keeps waiting; --on-hang end would end the run"
    # for as long as it takes, and said once
    assert here.seconds_until(bool, most=3600) is None
    assert here.said() == []
    here.ranks[1].now(OWN_CODE)
    assert not here.look()
    (again,) = here.said()
    assert again.startswith("moving again after 1 h ")
    assert [hung.ranks for hung in here.standing.over] == [(1,)]


def test_two_ranks_that_stand_are_ended_at_four_times_what_it_took_to_report_them(two_ranks):
    here = two_ranks("end")
    after_s = here.seconds_until(lambda _: here.watch.hung is not None, most=60)
    assert here.said()[-1].startswith("  --on-hang end: the run ends when it stands for ")
    more_s = here.seconds_until(bool, most=3600)
    assert END_TIMES * after_s <= after_s + more_s <= END_TIMES * after_s + FLOOR_S


def test_two_ranks_of_which_one_moves_in_time_are_not_reported(two_ranks):
    here = two_ranks("end")
    for _ in range(10):
        assert here.seconds_until(bool, most=FLOOR_S - 2) is None
        here.ranks[0].now(OWN_CODE)
    assert here.said() == []


def test_nothing_runs_before_a_rank_shows_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(hang, "_LOOK_S", 0.01)
    here = HangWatch(tmp_path, "report")
    assert here.said() == []
    assert here._thread is None
    monkeypatch.setenv(signs.FOLDER, str(tmp_path))
    open_pulse(0, 1)
    here.said()
    assert here._thread.is_alive()
    here.close()
    wait_until(lambda: not here._thread.is_alive())


def test_to_watch_a_command_torch_is_not_imported():
    code = "import sys, gpudoc.script.run, gpudoc.train.watch.stacks, gpudoc.train.watch.watch; "
    code += "from gpudoc.script.hang import Patience; Patience(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
