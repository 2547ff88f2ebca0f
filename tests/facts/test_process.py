from gpudoc.facts.process import Limits, ThreadStacks
from tests.facts.live.made import track


def test_the_quota_limits_the_cpus_that_affinity_leaves():
    assert Limits(cpus_online=64, cpus_affinity=16, cpu_quota_cores=4.0).cpus_usable == 4.0
    assert Limits(cpus_online=64, cpus_affinity=16).cpus_usable == 16.0
    assert Limits(cpus_online=64, cpus_affinity=2, cpu_quota_cores=4.0).cpus_usable == 2.0


def test_the_main_thread_has_the_id_of_its_process():
    assert ThreadStacks(pid=7, tid=7, name="MainThread", samples=()).is_main
    assert not ThreadStacks(pid=7, tid=8, name="QueueFeederThread", samples=()).is_main


def test_a_process_is_never_seen_for_no_time():
    assert track(first_s=3.0, last_s=3.0).seconds > 0
