import dataclasses

import pytest

from gpudoc.doctor.live.gain import ENOUGH, HANDING, capacity, plan_workers, saturated, without
from gpudoc.doctor.live.shares import summarise
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Glance, Handoff, Limits
from tests.facts.live.made import STACKS, stacks, track, watch, worker


def test_with_cpus_to_spare_the_training_step_is_the_limit():
    plan = plan_workers(watch({1: "load*75 backward*25"}, cpus=16))
    assert plan.gain == pytest.approx(4.0)
    assert plan.limit == "the training step"
    assert plan.num_workers == 3


def test_on_two_cpus_one_busy_process_can_be_doubled_at_most():
    plan = plan_workers(watch({1: "load*90 backward*10"}, [track(cpu_s=20.0, main_cpu_s=20.0)], cpus=2))
    assert plan.gain == pytest.approx(2.0)
    assert plan.limit == "the number of CPUs"


def test_the_gain_is_that_of_the_number_that_is_advised():
    """One worker leaves the step waiting a little; a second one would make it 2.0."""
    plan = plan_workers(watch({1: "load*110 backward*90"}, [track(cpu_s=20.0, main_cpu_s=20.0)], cpus=2))
    assert (plan.num_workers, plan.gain) == (1, pytest.approx(1 / 0.55))
    # where one would hardly be worth it, it is the number that is
    plan = plan_workers(watch({1: "load*95 backward*5"}, [track(cpu_s=34.8, main_cpu_s=20.0)], cpus=2))
    assert (plan.num_workers, plan.gain) == (2, pytest.approx(1 / 0.87))


def test_workers_that_are_busy_now_are_the_measure_of_the_work():
    threads = {1: "wait*50 backward*50", 2: "w_fetch*100", 3: "w_fetch*100"}
    plan = plan_workers(watch(threads, [track(cpu_s=10), worker(2, cpu_s=4), worker(3, cpu_s=4)], cpus=16))
    assert plan.gain == pytest.approx(2.0)
    assert plan.num_workers == 4


def test_receiving_batches_is_work_that_more_workers_do_not_take_away():
    threads = {1: "wait*50 receive*25 backward*25", 2: "w_fetch*100"}
    assert plan_workers(watch(threads, [track(), worker(2, cpu_s=4)], cpus=16)).gain == pytest.approx(2.0)


def short_steps(handoff, glances=()):
    """Steps of two milliseconds, half of them loading: a close-up at 5000 samples a second."""
    close = dataclasses.replace(stacks({1: "load*5 backward*5 " * 100}), rate_hz=5000.0)
    one_thread = [track(cpu_s=20.0, main_cpu_s=20.0)]
    return watch({1: "load backward " * 200}, one_thread, close_up=close, handoff=handoff, glances=glances)


def test_a_batch_that_is_made_faster_than_it_is_handed_over_stays_where_it_is():
    plan = plan_workers(short_steps(Handoff(0.004, 0.004)))
    assert plan.step.seconds == pytest.approx(0.002, rel=0.05)
    assert plan.limit == HANDING
    assert plan.gain == pytest.approx(0.4, rel=0.05)


def test_what_handing_over_costs_is_taken_off_the_gain():
    assert plan_workers(short_steps(Handoff(0.0002, 0.0002))).gain == pytest.approx(1.67, rel=0.05)
    assert plan_workers(short_steps(Absent("not measured"))).gain == pytest.approx(2.0, rel=0.05)


def test_a_worker_that_holds_the_lock_hands_over_late():
    looks = tuple(Glance(time_s=t, pid=1, frames=STACKS["load"], active=True, holds_gil=True) for t in range(9))
    cost = Handoff(0.0002, 0.004)
    assert plan_workers(short_steps(cost, looks)).gain == pytest.approx(0.4, rel=0.05)
    free = tuple(dataclasses.replace(look, holds_gil=False) for look in looks)
    assert plan_workers(short_steps(cost, free)).gain == pytest.approx(1.67, rel=0.05)


def test_steps_that_are_only_known_to_be_short_count_as_half_the_bound():
    close = dataclasses.replace(stacks({1: "load backward " * 200}), rate_hz=200.0)
    seen = watch({1: "load backward " * 200}, close_up=close, handoff=Handoff(0.0025, 0.0025))
    assert plan_workers(seen).step.at_most_s == pytest.approx(0.005)
    assert plan_workers(seen).gain == pytest.approx(1 / 1.5, rel=0.05)


def test_the_same_shares_in_long_steps_are_worth_workers():
    plan = plan_workers(watch({1: "load*8 backward*8 " * 25}, cpus=16))
    assert plan.step.seconds == pytest.approx(0.8, rel=0.1)
    assert plan.gain == pytest.approx(2.0, rel=0.05)


def crowded(others):
    """One thread on two CPUs of which other jobs use some."""
    limits = Limits(cpus_online=2, cpus_affinity=2, machine_busy_cores=1.0 + others)
    return summarise(watch({1: "load*90 backward*10"}, [track(cpu_s=20.0, main_cpu_s=20.0)], limits=limits))


def test_a_second_thread_gets_only_what_other_jobs_leave():
    assert capacity(crowded(0.0), 2) == pytest.approx(2.0)
    assert capacity(crowded(1.0), 2) == pytest.approx(4 / 3)


def test_a_job_that_waits_for_cpus_shares_them_with_those_that_it_waits_for():
    limits = Limits(cpus_online=2, cpus_affinity=2, machine_busy_cores=2.0)
    job = summarise(watch({1: "load*90 backward*10"}, [track(cpu_s=10.0, queued_s=10.0)], limits=limits))
    assert job.others_ready == pytest.approx(3.0)
    assert capacity(job, 1) == pytest.approx(0.5)
    assert capacity(job, 2) == pytest.approx(0.8)


def test_a_quota_is_the_jobs_own():
    limits = Limits(cpus_online=8, cpus_affinity=8, cpu_quota_cores=2.0, machine_busy_cores=8.0)
    job = summarise(watch({1: "load*90 backward*10"}, [track(cpu_s=20.0)], limits=limits))
    assert capacity(job, 5) == pytest.approx(2.0)


def test_cpus_that_are_all_asked_for_leave_no_room():
    job = summarise(watch({1: "wait*100"}, [track(cpu_s=20.0), worker(2, cpu_s=15.0, queued_s=20.0)], cpus=2))
    assert saturated(job)


def test_the_speed_up_of_a_part_that_falls_away():
    assert without(0.5) == 2.0
    assert without(1.0) == pytest.approx(50.0)
    assert without(0.0) == 1.0


def test_more_workers_than_cpus_only_where_loading_was_seen_to_wait():
    computing = plan_workers(watch({1: "load*90 backward*10"}, [track(cpu_s=20.0, main_cpu_s=20.0)], cpus=2))
    assert computing.num_workers <= 2
    assert computing.waits == 0
    waiting = plan_workers(watch({1: "load*90 backward*10"}, [track(cpu_s=2.0, main_cpu_s=2.0)], cpus=2))
    assert waiting.num_workers > 2
    assert waiting.waits == pytest.approx(0.9)


def test_as_many_workers_as_cpus_are_no_first_try_where_they_would_gain_nothing():
    """Others want the CPUs too: two workers would get too little of them to pay for handing batches over."""
    limits = Limits(cpus_online=2, cpus_affinity=2, machine_busy_cores=2.0)
    waits = [track(cpu_s=3.0, main_cpu_s=3.0, queued_s=1.5)]
    plan = plan_workers(watch({1: "load*90 backward*10 " * 5}, waits, limits=limits, handoff=Handoff(2.0, 2.0)))
    assert [n for n, _ in plan.ladder] == [8, 10]
    assert min(gain for _, gain in plan.ladder) >= ENOUGH
