from gpudoc.doctor.causes.job_loop import FINDERS
from gpudoc.doctor.model import Evidence, Skip
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Glance
from tests.doctor.causes.judge import all_of, sees
from tests.facts.live.made import STACKS, track, watch

ALL = all_of(FINDERS)
SHARES = {
    "python": "python_bound", "sleep": "python_bound", "log": "logging_each_step", "save": "checkpoint_too_often",
}  # fmt: skip
RANKS = [track(1, rank=0), track(2, rank=1)]
LOOKS = tuple(Glance(time_s=i, pid=1, frames=STACKS["backward"], active=False, holds_gil=False) for i in range(10))
BACKWARD = {1: "backward*90 forward*10"}


def blocked(**rank):
    return [track(1, cpu_s=4.0, looks=200, blocked={"futex": 80}, **rank)]


def only(seen):
    (found,) = ALL(Evidence(source="process", watch=seen))
    return found


test_what_takes_a_third_of_the_time_is_named_and_what_takes_little_is_not = sees([
    *((ALL, watch({1: f"{name}*33 backward*67"}), cause) for name, cause in SHARES.items()),
    *((ALL, watch({1: f"{name}*8 backward*92"}), "") for name in SHARES),
    (ALL, watch({1: "python*50 backward*50"}), "python_bound: edit_distance()"),
    (ALL, watch({1: "python*50 backward*50"}), "python_bound: train.py:30"),
    (ALL, watch({1: "save*10 backward*30 " * 2}), "checkpoint_too_often: 2 seen in 20 s"),
    # compiling again and again, but not once at the start
    (ALL, watch({1: "compile*8 backward*2 " * 10}), "compile_recompiles"),
    (ALL, watch({1: "compile*40 backward*60"}), ""),
])  # fmt: skip
test_a_wait_for_the_other_ranks = sees([
    (ALL, watch({1: "collective*60 backward*40", 2: "backward*95 collective*5"}, RANKS), "communication_bound: rank 1 is the last"),
    # a backward that waits for the network, seen by looks without the GIL or in the system call
    (ALL, watch(BACKWARD, [track(1, rank=0, cpu_s=4.0, main_cpu_s=2.0)], glances=LOOKS), "communication_bound"),
    (ALL, watch(BACKWARD, [track(1, rank=0, cpu_s=38.0, main_cpu_s=2.0)], glances=LOOKS), ""),
    (ALL, watch(BACKWARD, blocked(rank=0)), "communication_bound"),
    (ALL, watch(BACKWARD, blocked()), ""),
    # a rank that is late for a cause of its own is the finding
    (ALL, watch({1: "collective*60 backward*40", 2: "python*60 backward*40"}, RANKS), "python_bound"),
])  # fmt: skip


def test_what_a_finding_shows_and_advises():
    assert "12 times less often" in only(watch({1: "save*10 backward*30 " * 2})).fix[0].say
    waits = only(watch(BACKWARD, blocked(rank=0)))
    assert any(o.value == "40 %" for o in waits.evidence if o.fact == "waiting_inside_backward")


def test_without_stacks_every_cause_is_skipped_with_the_reason():
    answers = ALL(Evidence(source="process", watch=watch(Absent("ptrace refused"))))
    assert len(answers) == len(FINDERS)
    assert all(isinstance(a, Skip) and "ptrace" in a.because for a in answers)
