from gpudoc.doctor.live.phases import Phase
from gpudoc.doctor.live.shares import summarise
from gpudoc.facts.process import Glance
from tests.facts.live.made import STACKS, watch


def glances(held, count=6, active=True):
    return tuple(Glance(time_s=i, pid=1, frames=STACKS["unclear"], active=active, holds_gil=held) for i in range(count))


def phase(**changes):
    return max(summarise(watch({1: "unclear*90 backward*10"}, **changes)).lead.phases.items(), key=lambda p: p[1])[0]


def test_a_line_that_may_be_either_is_python_when_it_holds_the_lock():
    assert phase(glances=glances(held=True)) is Phase.PYTHON


def test_and_a_kernel_when_it_does_not():
    assert phase(glances=glances(held=False)) is Phase.FORWARD


def test_and_blocked_when_nothing_runs_there():
    assert phase(glances=glances(held=False, active=False)) is Phase.SLEEP


def test_without_enough_looks_nobody_is_blamed():
    assert phase() is Phase.FORWARD
    assert phase(glances=glances(held=True, count=2)) is Phase.FORWARD
