import dataclasses

import pytest

from gpudoc.doctor.causes.watched_input import FINDERS, judge_loader
from gpudoc.doctor.model import Evidence, Skip
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Handoff
from tests.facts.live.made import stacks, track, watch, worker


def judge(threads, processes, cpus=8, **changes):
    return judge_loader(Evidence(source="process", watch=watch(threads, processes, cpus, **changes)))


def fact(finding, name):
    return next((o.value for o in finding.evidence if o.fact == name), "")


def test_loading_in_the_main_process():
    found = judge({1: "load*60 backward*40"}, [track()])
    assert found.id == "too_few_workers"
    assert "num_workers=0" in found.title
    assert "data.py:7" in fact(found, "time_goes_to")
    assert fact(found, "estimated_gain") == "2.50x"
    assert "num_workers=2" in found.fix[0].say


def test_collating_in_the_main_process_is_told_apart():
    found = judge({1: "collate*50 load*5 backward*45"}, [track()])
    assert found.id == "collate_in_main_process"


def short_steps(phase):
    close = stacks({1: f"{phase}*5 backward*5 " * 100})
    return {"close_up": dataclasses.replace(close, rate_hz=5000.0), "handoff": Handoff(0.004, 0.004)}


def test_workers_are_not_advised_where_handing_over_costs_more_than_making():
    found = judge({1: "collate backward " * 200}, [track()], **short_steps("collate"))
    assert found.id == "collate_in_main_process"
    assert fact(found, "estimated_gain") == ""
    assert float(fact(found, "with_workers").partition("x")[0]) < 1.1
    assert not any("num_workers" in remedy.say for remedy in found.fix)
    loaded = judge({1: "load backward " * 200}, [track()], **short_steps("load"))
    assert loaded.id == "dataloader_bottleneck"
    assert "too small for workers" in loaded.title


def test_loading_that_threads_of_the_step_leave_no_cpu_for():
    full = track(cpu_s=38.0, main_cpu_s=19.0)
    assert judge({1: "load*8 backward*36 " * 9}, [full], 2).id == "decode_bound"


def test_busy_workers_with_cpus_to_spare():
    found = judge({1: "wait*60 backward*40", 2: "w_fetch*100"}, [track(cpu_s=8), worker(2, cpu_s=19, main_cpu_s=19)])
    assert found.id == "too_few_workers"
    assert "1 worker cannot keep up" in found.title


def test_busy_workers_on_full_cpus():
    processes = [track(cpu_s=8), *(worker(n, cpu_s=16, main_cpu_s=16) for n in (2, 3))]
    found = judge({1: "wait*60 backward*40", 2: "w_fetch*100", 3: "w_fetch*100"}, processes, cpus=2)
    assert found.id == "decode_bound"
    assert "more workers cannot help" in found.title


def test_many_more_workers_than_cpus():
    pids = range(2, 14)
    processes = [track(cpu_s=4), *(worker(n, cpu_s=3, main_cpu_s=3, queued_s=16, main_queued_s=16) for n in pids)]
    found = judge({1: "wait*60 backward*40", **dict.fromkeys(pids, "w_fetch*100")}, processes, cpus=2)
    assert found.id == "too_many_workers"
    assert "num_workers=2" in found.fix[0].say


@pytest.mark.parametrize("call", ["pread64 file nfs4", "recvfrom socket", "openat", "page fault"])
def test_workers_that_wait_for_storage(call):
    slow = {"looks": 200, "running": 20, "blocked": {call: 150}, "cpu_s": 2.0, "main_cpu_s": 2.0}
    found = judge({1: "wait*60 backward*40", 2: "w_fetch*100"}, [track(cpu_s=8), worker(2, **slow)])
    assert found.id == "slow_storage"
    assert call in fact(found, "workers_wait_for_storage")


def test_waiting_for_work_on_a_pipe_is_not_storage():
    idle = {"looks": 200, "blocked": {"poll": 150, "read pipe": 50}, "cpu_s": 19.0, "main_cpu_s": 19.0}
    found = judge({1: "wait*60 backward*40", 2: "w_fetch*100"}, [track(cpu_s=8), worker(2, **idle)])
    assert found.id == "too_few_workers"


def test_one_worker_that_all_wait_for():
    threads = {1: "wait*60 backward*40", 2: "w_fetch*100", 3: "w_fetch*20 w_idle*80", 4: "w_fetch*20 w_idle*80"}
    found = judge(threads, [track(cpu_s=8), *(worker(n, cpu_s=4, main_cpu_s=4) for n in (2, 3, 4))])
    assert found.id == "slow_worker"
    assert "process 2" in found.title


def test_workers_started_again_for_each_epoch():
    found = judge({1: "start*5 wait*20 backward*15 " * 3}, [track(), worker(2, first_s=8.0, born_during_watch=True)])
    assert found.id == "workers_recreated_each_epoch"


def test_one_start_is_no_restart():
    found = judge({1: "start*5 wait*20 backward*75", 2: "w_fetch*100"}, [track(cpu_s=8), worker(2, main_cpu_s=19)])
    assert found.id == "too_few_workers"


def test_idle_workers_and_a_waiting_step():
    found = judge({1: "wait*60 backward*40", 2: "w_fetch*30 w_idle*70"}, [track(), worker(2, main_cpu_s=1)])
    assert found.id == "dataloader_bottleneck"


def test_a_loader_that_keeps_up_is_no_finding():
    assert judge({1: "wait*10 backward*90", 2: "w_fetch*50 w_idle*50"}, [track(), worker(2)]) is None


def test_without_stacks_the_cpu_of_the_workers_speaks_with_less_certainty():
    refused = Absent("ptrace refused")
    busy = [track(cpu_s=5), worker(2, cpu_s=19.5, main_cpu_s=19.5)]
    found = judge(refused, busy)
    assert found.id == "too_few_workers"
    assert found.confidence < 0.5
    assert isinstance(judge(refused, [track()]), Skip)


def test_only_the_finder_of_the_cause_yields_it():
    evidence = Evidence(source="process", watch=watch({1: "load*60 backward*40"}))
    assert [f.id for f in FINDERS if list(f.find(evidence))] == ["too_few_workers"]


def test_that_pytorch_will_warn_of_the_advised_workers_is_said_with_the_reason():
    waits = judge({1: "load*90 backward*10"}, [track(cpu_s=2, main_cpu_s=2)], 2)
    said = waits.fix[0].say
    assert "PyTorch will warn of more workers than CPUs (2): loading waits 90 % of its time" in said
    # as many as CPUs first, with what they gain; then more, with the bound of the gain
    assert said.startswith(
        "Load in other processes: DataLoader(..., num_workers=2, persistent_workers=True), about 2.2 "
    )
    assert "More may help, up to about 10.0 times: try 4, 8, num_workers=9." in said
    computes = judge({1: "load*90 backward*10"}, [track(cpu_s=20, main_cpu_s=20)], 2)
    assert "warn" not in computes.fix[0].say
