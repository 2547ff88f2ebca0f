from dataclasses import replace

from gpudoc.bench import environment
from gpudoc.bench.compare import HARD_KEYS
from gpudoc.bench.environment import describe, gpu_of, make_plan, near_cpus
from gpudoc.facts.model import Absent, Container, CudaDevice, Driver, Host, Machine
from gpudoc.units import GIB, MIB
from tests.bench.builders import H100, machine
from tests.fakes.machine import A100, FakeMachine

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


def test_a_cpu_is_measured_in_several_processes_a_gpu_in_one():
    assert plan().rounds == 3
    # few samples in each, further apart in time
    assert plan(quick=True).rounds == 5
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


def test_a_process_bound_to_one_of_two_nodes_runs_as_many_threads_as_the_node_has_cores(monkeypatch):
    monkeypatch.setattr(environment, "cpus_of_node", lambda node: tuple(range(8)))
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda pid: set(range(16)))
    # two nodes of four cores with two threads each
    host = replace(HOST, architecture="x86_64", numa_nodes=2, cpu_count=16, cpu_cores_physical=8, cpus_usable=16.0)
    two = replace(machine(), host=host)
    assert (plan("cpu", two).threads, plan("cuda:0", two).threads) == (8, 4)
    assert plan("cuda:0", two).bind_cpus == tuple(range(8))


def test_a_gpu_that_is_not_there_has_no_facts():
    assert gpu_of("cuda:7", machine()) is None
    assert gpu_of("cuda:0", machine()).index == 0
    assert gpu_of("cpu", machine()) is None


def test_the_gpu_is_the_one_that_cuda_numbers_not_the_one_that_nvml_does():
    slow = replace(H100, index=0, name="Tesla T4", pci_address="0000:3b:00.0")
    fast = replace(H100, index=1)
    driver = Driver(cuda_devices=(CudaDevice(ordinal=0, pci_address=fast.pci_address),))
    mixed = replace(machine(), gpus=(slow, fast), driver=driver)
    assert gpu_of("cuda:0", mixed) is fast
    assert describe(plan("cuda:0", mixed), mixed)["gpu"] == H100.name


def test_the_node_is_that_of_the_bus_where_nvml_only_speaks_of_the_gpus_own_memory(tmp_path, monkeypatch):
    fake = FakeMachine(tmp_path / "m")
    fake.driver()
    fake.gpus(A100)
    fake.torch()
    # what x86 answers
    fake.error("nvmlDeviceGetNumaNodeId", 3)
    fake.file(f"sys/bus/pci/devices/{fake.address(0)}/numa_node", "1\n")
    fake.file("sys/devices/system/node/node1/cpulist", "0-31\n")
    asked = []
    monkeypatch.setattr(environment, "cpus_of_node", lambda node: asked.append(node) or (0, 1))
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda pid: {1, 2})
    assert near_cpus("cuda:0", fake.collect(quick=True)) == (1,)
    assert asked == [1]
