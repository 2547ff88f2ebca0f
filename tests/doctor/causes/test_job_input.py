import dataclasses

import pytest

from gpudoc.doctor.causes.job_input import FINDERS, judge_loader
from gpudoc.doctor.live.shares import summarise
from gpudoc.doctor.model import Evidence, Skip
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Handoff
from tests.facts.live.made import stacks, track, watch, worker


def judge(threads, processes=(), cpus=8, **changes):
    seen = watch(threads, list(processes) or [track()], cpus, **changes)
    return judge_loader(seen, summarise(seen))


def waits(*processes, cpus=8, main="wait*60 backward*40", **workers):
    """A step that waits, with two workers that fetch all the time unless told otherwise."""
    seen = workers or {f"w{process.pid}": "w_fetch*100" for process in processes[1:]}
    return judge({1: main, **{int(pid[1:]): doing for pid, doing in seen.items()}}, processes, cpus)


def fact(finding, name):
    return next((o.value for o in finding.evidence if o.fact == name), "")


def short_steps(phase, queued=0.0):
    close = stacks({1: f"{phase}*5 backward*5 " * 100})
    return {"close_up": dataclasses.replace(close, rate_hz=5000.0), "handoff": Handoff(0.004, 0.004, queued)}


EIGHT = track(cpu_s=8)
SLOW = {"looks": 200, "running": 20, "cpu_s": 2.0, "main_cpu_s": 2.0}
IDLE = {"looks": 200, "blocked": {"poll": 150, "read pipe": 50}, "cpu_s": 19.0, "main_cpu_s": 19.0}
QUEUED = {"cpu_s": 3, "main_cpu_s": 3, "queued_s": 16, "main_queued_s": 16}
CASES = {
    "loading in the main process": ("too_few_workers", "num_workers=0", lambda: judge({1: "load*60 backward*40"})),
    "collating in it is told apart": ("collate_in_main_process", "", lambda: judge({1: "collate*50 load*5 backward*45"})),
    "steps too small for workers": (
        "dataloader_bottleneck", "too small for workers", lambda: judge({1: "load backward " * 200}, **short_steps("load"))),
    "steps that look too small while others have the CPUs": (
        "too_few_workers", "num_workers=0", lambda: judge({1: "load backward " * 200}, **short_steps("load", 0.5))),
    "steps of a thread that waits for a CPU": (
        "too_few_workers", "num_workers=0",
        lambda: judge({1: "load backward " * 200}, [track(cpu_s=5, main_cpu_s=5, main_queued_s=15)], **short_steps("load"))),
    "threads of the step leave no CPU": (
        "decode_bound", "", lambda: judge({1: "load*8 backward*36 " * 9}, [track(cpu_s=38.0, main_cpu_s=19.0)], 2)),
    "busy workers with CPUs to spare": (
        "too_few_workers", "1 worker cannot keep up", lambda: waits(EIGHT, worker(2, cpu_s=19, main_cpu_s=19))),
    "busy workers on full CPUs": (
        "decode_bound", "more workers cannot help",
        lambda: waits(EIGHT, *(worker(n, cpu_s=16, main_cpu_s=16) for n in (2, 3)), cpus=2)),
    "many more workers than CPUs": (
        "too_many_workers", "", lambda: waits(track(cpu_s=4), *(worker(n, **QUEUED) for n in range(2, 14)), cpus=2)),
    "waiting for work on a pipe is not storage": ("too_few_workers", "", lambda: waits(EIGHT, worker(2, **IDLE))),
    "one worker that all wait for": (
        "slow_worker", "process 2",
        lambda: waits(EIGHT, *(worker(n, cpu_s=4, main_cpu_s=4) for n in (2, 3, 4)),
                      w2="w_fetch*100", w3="w_fetch*20 w_idle*80", w4="w_fetch*20 w_idle*80")),
    "workers started again for each epoch": (
        "workers_recreated_each_epoch", "",
        lambda: judge({1: "start*5 wait*20 backward*15 " * 3}, [track(), worker(2, first_s=8.0, born_during_watch=True)])),
    "one start is no restart": (
        "too_few_workers", "", lambda: waits(EIGHT, worker(2, main_cpu_s=19), main="start*5 wait*20 backward*75")),
    "idle workers and a waiting step": (
        "dataloader_bottleneck", "", lambda: waits(track(), worker(2, main_cpu_s=1), w2="w_fetch*30 w_idle*70")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_why_the_step_waits_for_data(case):
    cause, title, made = CASES[case]
    found = made()
    assert found.id == cause
    assert title in found.title


def test_a_loader_that_keeps_up_is_no_finding():
    assert waits(track(), worker(2), main="wait*10 backward*90", w2="w_fetch*50 w_idle*50") is None


def test_a_wait_that_other_processes_lengthen_is_not_the_loader_s():
    """Workers rest while the step waits 20 % of the time: once with a CPU of its own, once with a third of one."""
    rests = {"main": "wait*20 backward*80", "w2": "w_fetch*10 w_idle*90"}
    alone = waits(track(), worker(2, main_cpu_s=1), **rests)
    assert alone.id == "dataloader_bottleneck"
    crowded = waits(track(cpu_s=6, main_cpu_s=6, main_queued_s=13), worker(2, main_cpu_s=1), **rests)
    assert isinstance(crowded, Skip)
    assert "20 % of the time, and other processes lengthen it 3.2 times" in crowded.because
    much = {**rests, "main": "wait*60 backward*40"}
    assert waits(track(cpu_s=6, main_cpu_s=6, main_queued_s=13), worker(2, main_cpu_s=1), **much).id == alone.id


def test_what_a_finding_shows_and_advises():
    found = judge({1: "load*60 backward*40"})
    assert "data.py:7" in fact(found, "time_goes_to")
    assert fact(found, "estimated_gain") == "2.50x"
    assert "num_workers=2" in found.fix[0].say
    many = waits(track(cpu_s=4), *(worker(n, **QUEUED) for n in range(2, 14)), cpus=2)
    assert "num_workers=2" in many.fix[0].say


def test_workers_are_not_advised_where_handing_over_costs_more_than_making():
    found = judge({1: "collate backward " * 200}, **short_steps("collate"))
    assert found.id == "collate_in_main_process"
    assert fact(found, "estimated_gain") == ""
    assert float(fact(found, "with_workers").partition("x")[0]) < 1.1
    assert not any("num_workers" in remedy.say for remedy in found.fix)


@pytest.mark.parametrize("call", ["pread64 file nfs4", "recvfrom socket", "openat", "page fault"])
def test_workers_that_wait_for_storage(call):
    found = waits(EIGHT, worker(2, **SLOW, blocked={call: 150}))
    assert found.id == "slow_storage"
    assert call in fact(found, "workers_wait_for_storage")


def test_without_stacks_the_cpu_of_the_workers_speaks_with_less_certainty():
    refused = Absent("ptrace refused")
    found = judge(refused, [track(cpu_s=5), worker(2, cpu_s=19.5, main_cpu_s=19.5)])
    assert found.id == "too_few_workers"
    assert found.confidence < 0.5
    assert isinstance(judge(refused), Skip)


def test_only_the_finder_of_the_cause_yields_it():
    evidence = Evidence(source="process", watch=watch({1: "load*60 backward*40"}))
    assert [f.id for f in FINDERS if list(f.find(evidence))] == ["too_few_workers"]


def test_that_pytorch_will_warn_of_the_advised_workers_is_said_with_the_reason():
    said = judge({1: "load*90 backward*10"}, [track(cpu_s=2, main_cpu_s=2)], 2).fix[0].say
    assert "PyTorch warns about more workers than CPUs (2), but here they help: loading waits 90 % of its time" in said
    # as many as CPUs first, with what they gain; then more, with the bound of the gain
    assert said.startswith(
        "Load in other processes: DataLoader(..., num_workers=2, persistent_workers=True), about 2.2 "
    )
    assert "More may help, up to about 10.0 times: try 4, 8, num_workers=9." in said
    computes = judge({1: "load*90 backward*10"}, [track(cpu_s=20, main_cpu_s=20)], 2)
    assert "warn" not in computes.fix[0].say
