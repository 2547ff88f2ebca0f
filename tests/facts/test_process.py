import json

from gpudoc.facts import process
from gpudoc.facts.process import Limits, ThreadStacks, last_own
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


def test_the_last_frame_of_the_users_own_is_found_among_those_of_python_packages_and_gpudoc():
    frames = [
        ("/home/me/train.py", 4),
        ("/home/me/data.py", 7),
        (process.__file__, 1),
        (json.__file__, 2),
        ("<frozen runpy>", 3),
        ("/x/site-packages/torch/nn.py", 5),
        ("/usr/lib/python3/dist-packages/torch/nn.py", 5),
    ]
    assert last_own(frames) == "/home/me/data.py:7"
    assert last_own(frames[2:]) is None
