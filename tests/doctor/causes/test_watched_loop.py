import pytest

from gpudoc.doctor.causes.watched_loop import FINDERS
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Glance
from tests.facts.live.made import STACKS, track, watch


def ask(threads, processes=None, **changes):
    evidence = Evidence(source="process", watch=watch(threads, processes, **changes))
    return [a for f in FINDERS for a in f.find(evidence)]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("python", "python_bound"),
        ("sleep", "python_bound"),
        ("log", "logging_each_step"),
        ("save", "checkpoint_too_often"),
    ],
)
def test_what_takes_a_third_of_the_time_is_named_and_what_takes_little_is_not(name, cause):
    assert [f.id for f in ask({1: f"{name}*33 backward*67"})] == [cause]
    assert ask({1: f"{name}*8 backward*92"}) == []


def test_the_line_and_the_function_of_the_users_python():
    (found,) = ask({1: "python*50 backward*50"})
    assert "train.py:30" in found.title
    assert "edit_distance()" in found.title


def test_how_much_less_often_to_save():
    (found,) = ask({1: "save*10 backward*30 " * 2})
    assert "2 seen in 20 s" in found.title
    assert "12 times less often" in found.fix[0].say


def test_collectives_of_all_ranks_and_who_comes_last():
    ranks = [track(1, rank=0), track(2, rank=1)]
    (found,) = ask({1: "collective*60 backward*40", 2: "backward*95 collective*5"}, ranks)
    assert found.id == "communication_bound"
    assert "rank 1 is the last" in found.title


def test_a_backward_that_waits_for_the_network():
    looks = tuple(Glance(time_s=i, pid=1, frames=STACKS["backward"], active=False, holds_gil=False) for i in range(10))
    idle = [track(1, rank=0, cpu_s=4.0, main_cpu_s=2.0)]
    (found,) = ask({1: "backward*90 forward*10"}, idle, glances=looks)
    assert found.id == "communication_bound"
    busy = [track(1, rank=0, cpu_s=38.0, main_cpu_s=2.0)]
    assert ask({1: "backward*90 forward*10"}, busy, glances=looks) == []


def test_compiling_again_and_again_but_not_once_at_the_start():
    assert [f.id for f in ask({1: "compile*8 backward*2 " * 10})] == ["compile_recompiles"]
    assert ask({1: "compile*40 backward*60"}) == []


def test_without_stacks_every_cause_is_skipped_with_the_reason():
    answers = ask(Absent("ptrace refused"))
    assert len(answers) == len(FINDERS)
    assert all(isinstance(a, Skip) and "ptrace" in a.because for a in answers)
    assert not any(isinstance(a, Finding) for a in answers)


def test_a_wait_for_the_exchange_shows_in_the_system_call():
    waits = [track(1, rank=0, cpu_s=4.0, looks=200, blocked={"futex": 80})]
    (found,) = ask({1: "backward*90 forward*10"}, waits)
    assert found.id == "communication_bound"
    assert any(o.value == "40 %" for o in found.evidence if o.fact == "waiting_inside_backward")
    alone = [track(1, cpu_s=4.0, looks=200, blocked={"futex": 80})]
    assert ask({1: "backward*90 forward*10"}, alone) == []


def test_a_rank_that_is_late_for_a_cause_of_its_own_is_the_finding():
    ranks = [track(1, rank=0), track(2, rank=1)]
    (found,) = ask({1: "collective*60 backward*40", 2: "python*60 backward*40"}, ranks)
    assert found.id == "python_bound"
