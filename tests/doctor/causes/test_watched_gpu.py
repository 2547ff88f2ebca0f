"""Causes that only a GPU shows, proved with recorded NVML samples in the shape that the child writes."""

import json

from gpudoc.doctor.causes.watched_gpu import FINDERS
from gpudoc.doctor.model import Evidence, Skip
from gpudoc.facts.live.nvml import parse
from gpudoc.facts.model import Absent
from tests.facts.live.made import gpu, track, watch

MIB = 1 << 20


def ask(threads, device, processes=None):
    devices = device if isinstance(device, tuple) else (device,)
    evidence = Evidence(source="process", watch=watch(threads, processes, gpus=devices))
    return [a for f in FINDERS for a in f.find(evidence)]


def names(*arguments):
    return [f.id for f in ask(*arguments)]


def test_a_wait_after_which_the_gpu_idles():
    (found,) = ask({1: "sync*50 forward*30 backward*20"}, gpu(busy=55, power=150.0))
    assert found.id == "gpu_sync_each_step"
    assert "train.py:40" in found.title
    assert next(o.value for o in found.evidence if o.fact == "estimated_gain") == "1.82x"


def test_the_same_wait_with_a_busy_gpu_is_healthy():
    assert names({1: "sync*50 forward*30 backward*20"}, gpu(busy=97, power=380.0)) == []


def test_waits_that_data_causes_are_not_blamed_on_the_sync():
    assert names({1: "sync*20 wait*60 forward*20"}, gpu(busy=30)) == []


def test_many_small_kernels():
    busy_thread = [track(main_cpu_s=19.5, cpu_s=19.5)]
    assert names({1: "forward*50 backward*40 optimizer*10"}, gpu(busy=40, power=110.0), busy_thread) == ["launch_bound"]
    assert names({1: "forward*50 backward*40 optimizer*10"}, gpu(busy=97, power=390.0), busy_thread) == []


def test_kernels_that_fill_the_time_but_not_the_card():
    busy_thread = [track(main_cpu_s=19.5, cpu_s=19.5)]
    assert names({1: "forward*50 backward*50"}, gpu(busy=95, power=120.0), busy_thread) == ["launch_bound"]


def test_copies_that_block_the_step():
    assert names({1: "copy*30 forward*40 backward*30"}, gpu(busy=60), [track(main_cpu_s=8)]) == ["pageable_copies"]
    assert names({1: "copy*5 forward*65 backward*30"}, gpu(busy=85), [track(main_cpu_s=8)]) == []


def test_heat_that_cuts_the_clock():
    hot = gpu(throttle_reasons=("hardware thermal slowdown",), sm_clock_mhz=900, temperature_c=93)
    (found,) = ask({1: "backward*100"}, hot)
    assert found.id == "thermal_throttle"
    assert any("900 of 1980 MHz" in o.value for o in found.evidence)
    assert names({1: "backward*100"}, gpu(throttle_reasons=("software power cap",))) == []


def test_a_link_that_stays_low_under_load():
    (found,) = ask({1: "backward*100"}, gpu(pcie_generation=1, pcie_width=8))
    assert found.id == "pcie_link_degraded"
    assert "generation 1 x8 where generation 4 x16" in found.title


def test_a_link_that_an_idle_gpu_lowered():
    assert "pcie_link_degraded" not in names({1: "wait*100"}, gpu(busy=5, pcie_generation=1))
    assert names({1: "backward*100"}, gpu(pcie_generation=lambda i: 1 if i % 2 else 4)) == []


def test_a_neighbour_that_computes_on_the_same_gpu():
    (found,) = ask({1: "backward*100"}, gpu(users=((1, 50.0), (99, 45.0))))
    assert found.id == "gpu_shared"
    assert "Process 99" in found.title
    assert names({1: "backward*100"}, gpu(users=((1, 50.0), (99, 0.0)))) == []


def test_gpu_memory_that_grows_with_the_time_left():
    (found,) = ask({1: "backward*100"}, gpu(memory_used_bytes=lambda i: (20 << 30) + i * 20 * MIB))
    assert found.id == "gpu_memory_leak"
    assert "full in" in found.title


def test_training_on_the_cpu_beside_an_idle_gpu():
    (found,) = ask({1: "forward*50 backward*50"}, gpu(busy=0, power=60.0, users=()))
    assert found.id == "training_on_cpu"
    assert found.severity == "broken"


def two_gpus(memory, busy=(80, 40), users=((1, 1), (1, 1))):
    """Two GPUs as the child writes them: GiB used and busy percent of each, once with its users."""
    looks = [
        {"utilization_percent": b, "memory_used_bytes": int(m * 1024) * MIB, "power_w": 200.0,
         "users": [{"pid": p, "memory": 1, "sm": 50, "name": "python"} for p in set(pids)]}
        for m, b, pids in zip(memory, busy, users, strict=True)
    ]  # fmt: skip
    head = {"gpus": [{"name": "Test GPU", "memory_total_bytes": 80 << 30}] * 2}
    found = parse([json.dumps(row) for row in (head, *({"t": i / 10, "gpus": looks} for i in range(100)))])
    assert not isinstance(found, Absent)
    return found


def test_one_process_drives_two_gpus_and_the_first_is_fuller():
    (found,) = [f for f in ask({1: "dp_forward*60 backward*40"}, two_gpus((30, 12))) if f.id.startswith("data")]
    assert found.id == "dataparallel_imbalance"
    assert "GPU 0 holds 2.5 times" in found.title
    assert any("GPU 0: 30 GiB, GPU 1: 12 GiB" in o.value for o in found.evidence)
    assert "--nproc-per-node=2" in found.fix[0].run


def test_equal_gpus_are_named_only_when_the_copies_cost_time():
    even = two_gpus((20, 20), (90, 90))
    assert "dataparallel_imbalance" not in names({1: "dp_forward*60 backward*40"}, even)
    assert "dataparallel_imbalance" in names({1: "dp_copy*20 dp_forward*40 backward*40"}, even)


def test_data_parallel_on_one_gpu_or_none_of_its_frames_is_another_matter():
    uneven = two_gpus((30, 12))
    assert "dataparallel_imbalance" not in names({1: "dp_forward*60 backward*40"}, gpu())
    assert "dataparallel_imbalance" not in names({1: "forward*60 backward*40"}, uneven)
    # the second GPU is somebody else's
    theirs = two_gpus((30, 12), users=((1, 1), (9, 9)))
    assert "dataparallel_imbalance" not in names({1: "dp_forward*60 backward*40"}, theirs)


def test_a_machine_without_a_gpu_skips_all_with_the_reason():
    evidence = Evidence(source="process", watch=watch({1: "backward*100"}))
    answers = [a for f in FINDERS for a in f.find(evidence)]
    assert all(isinstance(a, Skip) and a.because == "NVML: not found" for a in answers)
