import io
import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from gpudoc.bench import worker
from gpudoc.bench.model import Case
from gpudoc.bench.sampling import MIN_SAMPLES, SamplingPlan
from gpudoc.bench.worker import plan_from_json, plan_to_json, share_of_time
from tests.bench.builders import reading
from tests.bench.host_gpu import HostGpu
from tests.waiting import wait_until

PLAN = SamplingPlan(device="cpu", only=("clock",), quick=True, rounds=2, budget_s=10.0, cpu_flags=("avx2", "fma"))


def start(plan):
    process = subprocess.Popen(
        [sys.executable, "-m", "gpudoc.bench.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.stdin.write(plan_to_json(replace(plan, parent_pid=os.getpid())) + "\n")
    process.stdin.close()
    return process


def test_a_plan_survives_the_pipe():
    plan = replace(PLAN, bind_cpus=(0, 1), data="/some/where")
    assert plan_from_json(plan_to_json(plan)) == plan


def test_each_round_is_a_process_of_its_own_and_speaks_json_lines():
    process = start(PLAN)
    events = [json.loads(line) for line in process.stdout]
    assert process.wait() == 0
    assert [event["event"] for event in events] == ["environment", "begin", "reading", "begin", "reading"]
    assert [event["values"]["round"] for event in events if event["event"] == "reading"] == [0, 1]
    assert events[0]["values"]["torch"]


def test_no_time_left_for_a_round_is_said():
    process = start(replace(PLAN, rounds=6, budget_s=0.0))
    events = [json.loads(line) for line in process.stdout]
    process.wait()
    # four of them have the samples that every row needs, so they run however late it is
    assert [event["case"] for event in events if event["event"] == "absent"] == ["process 5 of 6", "process 6 of 6"]
    assert sum(len(event["values"]["samples"]) for event in events if event["event"] == "reading") >= MIN_SAMPLES


@pytest.mark.parametrize("event", ["", "begin"])
def test_the_workers_die_with_their_parent_however_early_it_goes(tmp_path, event):
    # a file, since writing into a pipe that nobody reads would end them as well
    told = tmp_path / "told"
    told.touch()
    code = (
        "import json, os, subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-m', 'gpudoc.bench.worker'], stdin=subprocess.PIPE, text=True,"
        f" stdout=open({str(told)!r}, 'w'))\n"
        f"plan = json.loads({plan_to_json(replace(PLAN, only=('memory',), budget_s=120.0))!r})\n"
        "p.stdin.write(json.dumps(plan | {'parent_pid': os.getpid()}) + '\\n'); p.stdin.flush()\n"
        "print(p.pid, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    wait_until(lambda: event in told.read_text())
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 60
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def case(name, run, because="", share=1.0):
    return Case(name=name, meaning=name, share=share, absent_because=lambda _: because, run=run)


def events_of(monkeypatch, cases, gpu=None, soak_s=0.0):
    out = io.StringIO()
    monkeypatch.setattr(worker, "cases_for", lambda device: cases)
    if gpu is not None:
        monkeypatch.setattr(worker, "CudaGpu", lambda index: gpu)
    monkeypatch.setattr(sys, "stdout", out)
    worker._run_round(replace(PLAN, only=(), device="cuda:0" if gpu else "cpu", soak_s=soak_s), 0, 1.0)
    monkeypatch.undo()
    return [json.loads(line) for line in out.getvalue().splitlines()]


def breaks(run):
    yield reading()
    raise RuntimeError("CUDA error: unspecified launch failure\nmore lines")


def works(run):
    run.leave_out("one point", "too large")
    yield reading("after")


def test_a_broken_case_keeps_what_it_gave_and_takes_no_other_with_it(monkeypatch):
    events = events_of(monkeypatch, (case("a", breaks), case("b", works), case("c", works, because="not here")))
    kinds = ["absent", "begin", "reading", "failed", "begin", "reading", "absent"]
    assert [event["event"] for event in events] == kinds
    assert events[0] == {"event": "absent", "case": "c", "because": "not here"}
    assert "unspecified launch failure" in events[3]["because"]
    assert "more lines" not in events[3]["because"]
    assert events[6]["case"] == "one point"


def test_a_card_that_falls_off_ends_the_round_with_what_was_measured(monkeypatch):
    class Lost(HostGpu):
        def synchronize(self):
            raise RuntimeError("CUDA error: GPU is lost")

    events = events_of(monkeypatch, (case("a", breaks), case("b", works)), gpu=Lost())
    assert [event["event"] for event in events] == ["gpu", "begin", "reading", "failed", "lost"]
    assert "stopped answering" in events[-1]["because"]


def test_the_card_is_awake_before_the_first_case_asks_for_it(monkeypatch):
    gpu = HostGpu()

    def first(bench):
        gpu.log.append("case")
        yield reading()

    events_of(monkeypatch, (case("a", first),), gpu=gpu)
    assert gpu.log == ["wake", "case"]


def test_a_soak_is_the_last_thing_a_gpu_does_and_takes_no_time_of_the_others(monkeypatch):
    soak = case("soak", works, share=1e-9)
    monkeypatch.setattr(worker.cuda_soak, "CASE", soak)
    events = events_of(monkeypatch, (case("a", works),), gpu=HostGpu(), soak_s=60.0)
    assert [event["case"] for event in events if event["event"] == "begin"] == ["a", "soak"]
    monkeypatch.setattr(worker.cuda_soak, "CASE", soak)
    events = events_of(monkeypatch, (case("a", works),), gpu=HostGpu())
    assert [event["case"] for event in events if event["event"] == "begin"] == ["a"]


def test_what_one_case_overran_is_taken_from_all_that_follow():
    first, second, third = (case(name, works) for name in "abc")
    assert share_of_time(first, [second, third], 9.0) == 3.0
    assert share_of_time(second, [third], 2.0) == 1.0
    assert share_of_time(third, [], 2.0) == 2.0
    assert share_of_time(third, [], -1.0) == 0.0
