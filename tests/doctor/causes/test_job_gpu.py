"""Causes that only a GPU shows, proved with recorded NVML samples in the shape that the child writes."""

import json

from gpudoc.doctor.causes.job_gpu import FINDERS
from gpudoc.doctor.model import Evidence, Skip
from gpudoc.facts.live.nvml import parse
from gpudoc.facts.model import Absent
from tests.doctor.causes.judge import all_of, sees
from tests.facts.live.made import gpu, track, watch

MIB = 1 << 20
ALL = all_of(FINDERS)


def on(threads, device, *processes):
    """One process that does this, on one GPU or on several."""
    devices = device if isinstance(device, tuple) else (device,)
    return watch({1: threads}, list(processes) or None, gpus=devices)


def only(threads, device, *processes):
    (found,) = ALL(Evidence(source="process", watch=on(threads, device, *processes)))
    return found


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


def imbalance(evidence):
    """The one cause of GPUs of one process that are not alike."""
    return [a for a in ALL(evidence) if not isinstance(a, Skip) and a.id == "dataparallel_imbalance"]


FULL, COPIES = track(main_cpu_s=19.5, cpu_s=19.5), track(main_cpu_s=8)
WAITS, STEP = "sync*50 forward*30 backward*20", "forward*50 backward*40 optimizer*10"
PARALLEL, UNEVEN, EVEN = "dp_forward*60 backward*40", two_gpus((30, 12)), two_gpus((20, 20), (90, 90))
HOT = gpu(throttle_reasons=("hardware thermal slowdown",), sm_clock_mhz=900, temperature_c=93)

test_a_gpu_that_waits_for_the_host = sees([
    (ALL, on(WAITS, gpu(busy=55, power=150.0)), "gpu_sync_each_step: train.py:40"),
    (ALL, on(WAITS, gpu(busy=97, power=380.0)), ""),
    # waits that data causes are not blamed on the sync
    (ALL, on("sync*20 wait*60 forward*20", gpu(busy=30)), ""),
    (ALL, on(STEP, gpu(busy=40, power=110.0), FULL), "launch_bound"),
    (ALL, on(STEP, gpu(busy=97, power=390.0), FULL), ""),
    # kernels that fill the time but not the card
    (ALL, on("forward*50 backward*50", gpu(busy=95, power=120.0), FULL), "launch_bound"),
    (ALL, on("copy*30 forward*40 backward*30", gpu(busy=60), COPIES), "pageable_copies"),
    (ALL, on("copy*5 forward*65 backward*30", gpu(busy=85), COPIES), ""),
    (ALL, on("forward*50 backward*50", gpu(busy=0, power=60.0, users=())), "training_on_cpu"),
    # the counters know better than the power how much of the card works
    (ALL, on("forward*50 backward*50", gpu(busy=95, power=120.0, sm_active_percent=85.0), FULL), ""),
    (ALL, on("forward*50 backward*50", gpu(busy=95, power=300.0, sm_active_percent=20.0), FULL), "launch_bound"),
])  # fmt: skip
IN_FP32 = {"sm_active_percent": 92.0, "tensor_active_percent": 1.0, "fp32_active_percent": 70.0}
test_a_gpu_that_is_busy_without_its_tensor_cores = sees([
    (ALL, on(STEP, gpu(busy=100, **IN_FP32)), "tf32_off: busy 100 % of the time, and its tensor cores 1 %"),
    # with tensor cores, with a GPU that waits, with little arithmetic at all, and where nobody counts
    (ALL, on(STEP, gpu(busy=100, **{**IN_FP32, "tensor_active_percent": 40.0})), ""),
    (ALL, on(STEP, gpu(busy=70, **IN_FP32)), ""),
    (ALL, on(STEP, gpu(busy=100, **{**IN_FP32, "fp32_active_percent": 8.0})), ""),
    (ALL, on(STEP, gpu(busy=100, **{**IN_FP32, "fp32_active_percent": Absent("not given")})), ""),
    (ALL, on(STEP, gpu(busy=100)), ""),
])  # fmt: skip
test_a_gpu_that_is_held_back = sees([
    (ALL, on("backward*100", HOT), "thermal_throttle"),
    (ALL, on("backward*100", gpu(throttle_reasons=("software power cap",))), ""),
    (ALL, on("backward*100", gpu(pcie_generation=1, pcie_width=8)), "pcie_link_degraded: generation 1 x8 where generation 4 x16"),
    (ALL, on("backward*100", gpu(pcie_generation=lambda i: 1 if i % 2 else 4)), ""),
    (ALL, on("backward*100", gpu(users=((1, 50.0), (99, 45.0)))), "gpu_shared: Process 99"),
    (ALL, on("backward*100", gpu(users=((1, 50.0), (99, 0.0)))), ""),
    (ALL, on("backward*100", gpu(memory_used_bytes=lambda i: (20 << 30) + i * 20 * MIB)), "gpu_memory_leak: full in"),
])  # fmt: skip
test_gpus_of_one_process_that_are_not_alike = sees([
    (imbalance, on(PARALLEL, UNEVEN), "dataparallel_imbalance: GPU 0 holds 2.5 times"),
    # equal GPUs are named only when the copies cost time
    (imbalance, on(PARALLEL, EVEN), ""),
    (imbalance, on("dp_copy*20 dp_forward*40 backward*40", EVEN), "dataparallel_imbalance"),
    # on one GPU, without its frames, and where the second GPU is somebody else's
    (imbalance, on(PARALLEL, gpu()), ""),
    (imbalance, on("forward*60 backward*40", UNEVEN), ""),
    (imbalance, on(PARALLEL, two_gpus((30, 12), users=((1, 1), (9, 9)))), ""),
])  # fmt: skip


def test_what_a_finding_shows_and_advises():
    (gain,) = [o.value for o in only(WAITS, gpu(busy=55, power=150.0)).evidence if o.fact == "estimated_gain"]
    assert gain == "1.82x"
    assert any("900 of 1980 MHz" in o.value for o in only("backward*100", HOT).evidence)
    assert only("forward*50 backward*50", gpu(busy=0, power=60.0, users=())).severity == "broken"
    (uneven,) = imbalance(Evidence(source="process", watch=on(PARALLEL, UNEVEN)))
    assert any("GPU 0: 30 GiB, GPU 1: 12 GiB" in o.value for o in uneven.evidence)
    neighbour = only("backward*100", gpu(users=((1, 50.0), (99, 45.0))))
    assert [found.cards[0].index for found in (only("backward*100", HOT), neighbour)] == [0, 0]


def test_a_link_that_an_idle_gpu_lowered():
    answers = ALL(Evidence(source="process", watch=on("wait*100", gpu(busy=5, pcie_generation=1))))
    assert "pcie_link_degraded" not in [answer.id for answer in answers if not isinstance(answer, Skip)]


def test_a_machine_without_a_gpu_skips_all_with_the_reason():
    answers = ALL(Evidence(source="process", watch=watch({1: "backward*100"})))
    assert all(isinstance(a, Skip) and a.because == "NVML: not found" for a in answers)
