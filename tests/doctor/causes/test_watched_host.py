import dataclasses

from gpudoc.doctor.causes.watched_host import find_cpu_quota, find_openmp_spinning, find_oversubscription
from gpudoc.doctor.model import Evidence, Skip
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Limits
from gpudoc.process.openmp import OpenMp
from tests.facts.live.made import track, watch, worker


def ask(find, *arguments, **changes):
    return list(find(Evidence(source="process", watch=watch(*arguments, **changes))))


def test_more_threads_than_cpus():
    (found,) = ask(find_oversubscription, {1: "backward*100"}, [track(cpu_s=38, queued_s=250, num_threads=17)], 2)
    assert found.id == "cpu_oversubscription"
    assert "OMP_NUM_THREADS=2" in found.fix[0].run
    assert "decode_bound" in found.explains


def test_workers_with_threads_of_their_own():
    workers = [worker(n, cpu_s=15, queued_s=60) for n in (2, 3)]
    (found,) = ask(find_oversubscription, {1: "wait*100"}, [track(cpu_s=2), *workers], 2)
    assert found.id == "cpu_oversubscription"


def test_many_workers_of_one_thread_are_another_cause():
    workers = [worker(n, cpu_s=3, queued_s=16) for n in range(2, 14)]
    assert ask(find_oversubscription, {1: "wait*100"}, [track(cpu_s=2), *workers], 2) == []


def test_two_threads_on_two_cpus_are_fine_on_a_busy_machine():
    assert ask(find_oversubscription, {1: "backward*100"}, [track(cpu_s=20, queued_s=20)], 2) == []


def limits(**changes):
    return Limits(cpus_online=8, cpus_affinity=8, **changes)


def test_a_quota_that_stops_the_job():
    throttled = limits(cpu_quota_cores=2.0, throttled_s=12.0, throttled_periods=160, periods=200)
    (found,) = ask(find_cpu_quota, {1: "backward*100"}, limits=throttled)
    assert found.id == "cgroup_cpu_limit"
    assert "80 %" in found.title


def test_threads_that_only_a_quota_is_too_small_for():
    tight = limits(cpu_quota_cores=0.5, throttled_s=2.0, throttled_periods=20, periods=200)
    two_threads = [track(cpu_s=8, queued_s=32)]
    assert ask(find_oversubscription, {1: "backward*100"}, two_threads, limits=tight) == []
    (found,) = ask(find_cpu_quota, {1: "backward*100"}, two_threads, limits=tight)
    assert found.id == "cgroup_cpu_limit"
    many = [track(cpu_s=8, queued_s=400)]
    assert ask(find_oversubscription, {1: "backward*100"}, many, limits=tight) != []


def test_a_quota_that_is_hardly_reached_and_no_quota():
    assert (
        ask(
            find_cpu_quota,
            {1: "backward*100"},
            limits=limits(cpu_quota_cores=2.0, throttled_periods=5, periods=200, throttled_s=0.1),
        )
        == []
    )
    assert ask(find_cpu_quota, {1: "backward*100"}) == []
    assert isinstance(ask(find_cpu_quota, {1: "backward*100"}, limits=Absent("no /proc"))[0], Skip)


def test_a_process_without_schedstat_is_skipped():
    bare = dataclasses.replace(track(), queued_s=Absent("no /proc/PID/schedstat"))
    assert isinstance(ask(find_oversubscription, {1: "backward*100"}, [bare])[0], Skip)


GOMP = OpenMp("libgomp")
TEAM = {"cpu_s": 24.0, "queued_s": 16.0, "openmp": GOMP, "switches_involuntary": 4000}
CROWDED = Limits(cpus_online=2, cpus_affinity=2, machine_busy_cores=2.0)


def test_threads_that_wait_awake_beside_other_work_are_named_with_the_setting_of_their_runtime():
    (found,) = ask(find_openmp_spinning, {1: "backward*100"}, [track(**TEAM)], limits=CROWDED)
    assert found.id == "openmp_spinning"
    assert found.title.startswith("2 OpenMP threads spin for 2 CPUs, of which others keep 0.8 busy: 40 % of what")
    assert [remedy.run for remedy in found.fix] == ["export OMP_WAIT_POLICY=passive", "export OMP_NUM_THREADS=1"]
    assert any("200 times per second" in seen.value for seen in found.evidence)


def test_no_thread_spins_alone_nor_where_it_sleeps_nor_where_it_need_not_wait():
    alone = Limits(cpus_online=2, cpus_affinity=2, machine_busy_cores=1.3)
    roomy = Limits(cpus_online=8, cpus_affinity=8, machine_busy_cores=2.0)
    asleep = {**TEAM, "openmp": OpenMp("libgomp", {"OMP_WAIT_POLICY": "PASSIVE"})}
    one = {**TEAM, "cpu_s": 12.0, "queued_s": 8.0}
    for limits_, seen in ((alone, TEAM), (roomy, TEAM), (CROWDED, asleep), (CROWDED, one)):
        assert ask(find_openmp_spinning, {1: "backward*100"}, [track(**seen)], limits=limits_) == []


def test_more_threads_than_cpus_of_its_own_are_another_cause():
    many = {**TEAM, "queued_s": 100.0}
    assert ask(find_openmp_spinning, {1: "backward*100"}, [track(**many)], limits=CROWDED) == []
