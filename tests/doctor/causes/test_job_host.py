import dataclasses

from gpudoc.doctor.causes.job_host import FINDERS
from gpudoc.doctor.model import Evidence
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Limits
from gpudoc.process.openmp import OpenMp
from tests.doctor.causes.judge import sees
from tests.facts.live.made import track, watch, worker


def limits(**changes):
    return Limits(cpus_online=8, cpus_affinity=8, **changes)


def crowd(cpus, busy):
    return Limits(cpus_online=cpus, cpus_affinity=cpus, machine_busy_cores=busy)


def on(*processes, cpus=2, threads="backward*100", **changes):
    return watch({1: threads}, list(processes) or None, cpus, **changes)


THROTTLED = limits(cpu_quota_cores=2.0, throttled_s=12.0, throttled_periods=160, periods=200)
TIGHT = limits(cpu_quota_cores=0.5, throttled_s=2.0, throttled_periods=20, periods=200)
REACHED_ONCE = limits(cpu_quota_cores=2.0, throttled_periods=5, periods=200, throttled_s=0.1)
TWO, MANY = track(cpu_s=8, queued_s=32), track(cpu_s=8, queued_s=400)
MORE = on(track(cpu_s=38, queued_s=250, num_threads=17))
TEAM = {"cpu_s": 24.0, "queued_s": 16.0, "openmp": OpenMp("libgomp"), "switches_involuntary": 4000}
ASLEEP = OpenMp("libgomp", {"OMP_WAIT_POLICY": "PASSIVE"})
QUOTA, MANY_THREADS, SPIN = (finder.find for finder in FINDERS)
CROWDED = crowd(2, 2.0)

test_more_threads_than_cpus = sees([
    (MANY_THREADS, MORE, "cpu_oversubscription"),
    # workers with threads of their own; many of one thread are another cause
    (MANY_THREADS, on(track(cpu_s=2), *(worker(n, cpu_s=15, queued_s=60) for n in (2, 3)), threads="wait*100"), "cpu_oversubscription"),
    (MANY_THREADS, on(track(cpu_s=2), *(worker(n, cpu_s=3, queued_s=16) for n in range(2, 14)), threads="wait*100"), ""),
    # two threads on two CPUs are fine on a busy machine
    (MANY_THREADS, on(track(cpu_s=20, queued_s=20)), ""),
    # threads that only a quota is too small for
    (MANY_THREADS, on(TWO, cpus=8, limits=TIGHT), ""),
    (MANY_THREADS, on(MANY, cpus=8, limits=TIGHT), "cpu_oversubscription"),
    (MANY_THREADS, on(dataclasses.replace(track(), queued_s=Absent("no /proc/PID/schedstat"))), "skipped"),
])  # fmt: skip
test_a_quota_that_stops_the_job = sees([
    (QUOTA, on(limits=THROTTLED), "cgroup_cpu_limit: 80 %"),
    (QUOTA, on(TWO, cpus=8, limits=TIGHT), "cgroup_cpu_limit"),
    (QUOTA, on(limits=REACHED_ONCE), ""),
    (QUOTA, on(), ""),
    (QUOTA, on(limits=Absent("no /proc")), "skipped"),
])  # fmt: skip
test_threads_that_wait_awake_beside_other_work = sees([
    (SPIN, on(track(**TEAM), limits=CROWDED), "openmp_spinning: 2 OpenMP threads spin on 2 CPUs, and other processes keep 0.8 of these busy: they wait for a CPU 40 % of their time"),
    # alone, where there is room, where they sleep, and where there is one
    (SPIN, on(track(**TEAM), limits=crowd(2, 1.3)), ""),
    (SPIN, on(track(**TEAM), limits=crowd(8, 2.0)), ""),
    (SPIN, on(track(**{**TEAM, "openmp": ASLEEP}), limits=CROWDED), ""),
    (SPIN, on(track(**{**TEAM, "cpu_s": 12.0, "queued_s": 8.0}), limits=CROWDED), ""),
    # more threads than CPUs of its own are another cause
    (SPIN, on(track(**{**TEAM, "queued_s": 100.0}), limits=CROWDED), ""),
])  # fmt: skip


def only(find, seen):
    (found,) = find(Evidence(source="process", watch=seen))
    return found


def test_what_a_finding_advises():
    more = only(MANY_THREADS, MORE)
    assert "OMP_NUM_THREADS=2" in more.fix[0].run
    spins = only(SPIN, on(track(**TEAM), limits=CROWDED))
    assert [remedy.run for remedy in spins.fix] == ["export OMP_WAIT_POLICY=passive", "export OMP_NUM_THREADS=1"]
    assert any("200 times per second" in seen.value for seen in spins.evidence)
