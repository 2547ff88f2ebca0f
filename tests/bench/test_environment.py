from dataclasses import replace

import pytest

from gpudoc.bench import environment
from gpudoc.bench.compare import HARD_KEYS
from gpudoc.bench.environment import describe, gpu_of, make_plan, near_cpus
from gpudoc.facts.model import Absent, Container, Host, Machine
from gpudoc.units import GIB, MIB
from tests.bench.builders import H100, machine

HOST = Host(
    system="Linux",
    cpu_model="a CPU",
    cpu_cores_physical=8,
    cpus_usable=3.5,
    cpu_flags=("avx2", "hypervisor"),
    last_level_cache_bytes=32 * MIB,
    memory_available_bytes=4 * GIB,
    memory_total_bytes=8 * GIB,
)


HERE = Machine(host=HOST)


def plan(device="cpu", made=HERE, **more):
    return make_plan(device, made, **{"quick": False, "only": (), "data": None, **more})


def test_threads_are_cores_that_may_be_used_whole():
    assert plan().threads == 3
    assert plan(made=Machine(host=replace(HOST, cpus_usable=0.5))).threads == 1
    assert plan(made=Machine(host=replace(HOST, cpus_usable=64.0))).threads == 8


def test_a_cpu_is_measured_in_three_processes_a_gpu_in_one():
    assert plan().rounds == 3
    assert plan("cuda:0", machine()).rounds == 1
    assert plan(quick=True).budget_s < plan().budget_s <= 90


def test_unknown_facts_leave_a_plan_that_works():
    made = plan(made=Machine(container=Container()))
    assert made.threads >= 1
    assert made.last_level_cache_bytes == 0
    assert made.memory_bytes > 0


def test_the_record_names_the_machine_and_nobody_on_it(monkeypatch):
    monkeypatch.setenv("USER", "someone")
    cpu = describe(plan(), Machine(host=HOST))
    assert cpu["cpu"] == "a CPU"
    assert cpu["virtualised"] == "yes"
    assert cpu["device"] == "cpu"
    gpu = describe(plan("cuda:0", machine()), machine())
    assert (gpu["gpu"], gpu["capability"]) == ("NVIDIA H100 80GB HBM3", "9.0")
    assert set(HARD_KEYS) <= set(cpu) | set(gpu)
    assert not [value for value in (*cpu.values(), *gpu.values()) if "someone" in str(value)]


def test_the_process_is_bound_to_the_gpus_node_when_there_are_several(monkeypatch):
    here = sorted(__import__("os").sched_getaffinity(0))
    monkeypatch.setattr(environment, "cpus_of_node", lambda node: (here[0], 10_000))
    two = replace(machine(), host=replace(machine().host, numa_nodes=2))
    assert near_cpus("cuda:0", two) == (here[0],)
    assert near_cpus("cuda:0", machine()) == ()
    assert near_cpus("cpu", two) == ()
    hidden = replace(two, gpus=(replace(H100, numa_node=Absent("hidden")),))
    assert near_cpus("cuda:0", hidden) == ()


def test_a_gpu_that_is_not_there_has_no_facts():
    assert gpu_of("cuda:7", machine()) is None
    assert gpu_of("cuda:0", machine()).index == 0
    assert gpu_of("cpu", machine()) is None


@pytest.mark.parametrize(
    ("mask", "index", "found"),
    [("1", 0, 1), ("1,0", 1, 0), ("GPU-bb", 0, 1), ("0", 1, None), ("7", 0, None), ("", 1, 1)],
)
def test_a_mask_renumbers_the_gpus(mask, index, found):
    cards = (replace(H100, index=0, uuid="GPU-aa11"), replace(H100, index=1, uuid="GPU-bb22"))
    masked = replace(machine(), gpus=cards, environment={"CUDA_VISIBLE_DEVICES": mask})
    gpu = gpu_of(f"cuda:{index}", masked)
    assert (gpu.index if gpu else None) == found
