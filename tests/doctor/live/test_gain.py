import pytest

from gpudoc.doctor.live.gain import cpu_room, plan_workers, saturated, without
from gpudoc.doctor.live.shares import summarise
from tests.facts.live.made import track, watch, worker


def test_with_cpus_to_spare_the_training_step_is_the_limit():
    plan = plan_workers(summarise(watch({1: "load*75 backward*25"}, cpus=16)))
    assert plan.gain == pytest.approx(4.0)
    assert plan.limit == "the training step"
    assert plan.num_workers == 3


def test_on_two_cpus_one_busy_process_can_be_doubled_at_most():
    plan = plan_workers(summarise(watch({1: "load*90 backward*10"}, [track(cpu_s=20.0)], cpus=2)))
    assert plan.gain == pytest.approx(2.0)
    assert plan.limit == "the number of CPUs"


def test_workers_that_are_busy_now_are_the_measure_of_the_work():
    threads = {1: "wait*50 backward*50", 2: "w_fetch*100", 3: "w_fetch*100"}
    plan = plan_workers(summarise(watch(threads, [track(cpu_s=10), worker(2, cpu_s=4), worker(3, cpu_s=4)], cpus=16)))
    assert plan.gain == pytest.approx(2.0)
    assert plan.num_workers == 4


def test_cpus_that_are_all_asked_for_leave_no_room():
    job = summarise(watch({1: "wait*100"}, [track(cpu_s=20.0), worker(2, cpu_s=15.0, queued_s=20.0)], cpus=2))
    assert cpu_room(job) == 1.0
    assert saturated(job)


def test_the_speed_up_of_a_part_that_falls_away():
    assert without(0.5) == 2.0
    assert without(1.0) == pytest.approx(50.0)
    assert without(0.0) == 1.0
