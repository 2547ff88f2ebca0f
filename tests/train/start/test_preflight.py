"""Doctor is asked before the start; what breaks the device stops the run, with cause and fix."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.distributed import HashStore

from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Card, Evidence, Finding
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Absent, CudaDevice, Driver, Gpu, GpuProcess, Machine, PciDevice
from gpudoc.train.ranks.meeting import Met, Place
from gpudoc.train.ranks.pulse import Pulse
from gpudoc.train.start import preflight
from gpudoc.train.start.preflight import check_device


def met(rank, store=None):
    place = Place(rank=rank, world=2, local_rank=rank, local_world=2)
    return Met(place=place, store=store or HashStore(), pulse=Pulse())


def machine_with_a_gpu():
    device = PciDevice(address="0000:01:00.0", vendor_id=0x10DE, device_id=0x2330, class_code=0x030200)
    return Machine(pci=(device,), gpus=(Gpu(index=0, name="NVIDIA H100"),))


def test_a_machine_without_a_gpu_trains_on_the_cpu_and_says_so():
    flight = check_device("auto", check=True, collect_facts=lambda: Machine(pci=(), gpus=()))
    assert flight.device == "cpu"
    assert "no GPU" in flight.said[0].text
    assert flight.stages[0]["name"] == "doctor"
    assert flight.stages[0]["status"] == "done"


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch can use this machine's GPU")
def test_a_gpu_that_torch_cannot_use_stops_the_run_with_the_way_round():
    with pytest.raises(GpudocError) as caught:
        check_device("auto", check=True, collect_facts=machine_with_a_gpu)
    assert caught.value.exit_code == 1
    assert "--device cpu" in caught.value.hint
    assert check_device("cpu", check=True, collect_facts=machine_with_a_gpu).device == "cpu"


def test_without_the_check_no_facts_are_collected():
    def never():
        raise AssertionError("collected")

    flight = check_device("cpu", check=False, collect_facts=never)
    assert flight.stages[0]["status"] == "skipped"


def two_gpus(**second):
    gpus = (
        Gpu(index=0, name="NVIDIA A100", pci_address="0000:10:00.0"),
        Gpu(index=1, name="NVIDIA A100", pci_address="0000:11:00.0", **second),
    )
    # CUDA counts the other way round
    devices = (
        CudaDevice(ordinal=0, pci_address="0000:11:00.0"),
        CudaDevice(ordinal=1, pci_address="0000:10:00.0"),
    )
    return Machine(pci=(), gpus=gpus, driver=Driver(cuda_devices=devices))


@pytest.fixture
def cuda_works(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_a_broken_gpu_stops_only_the_run_that_uses_it(cuda_works, monkeypatch):
    machine = two_gpus()
    broken = Finding(id="gpu_hardware_fault", confidence=0.9, evidence=(), cards=(Card.of(machine.gpus[1]),), title="X")
    report = diagnose(Evidence(source="machine"))
    monkeypatch.setattr(preflight, "diagnose", lambda _: replace(report, findings=(broken,)))
    with pytest.raises(GpudocError, match="doctor says: X"):
        check_device("cuda:0", check=True, collect_facts=lambda: machine)
    flight = check_device("cuda:1", check=True, collect_facts=lambda: machine)
    assert flight.device == "cuda:1"
    assert [said.text for said in flight.said if said.warning] == ["doctor: X"]
    # all ranks of a machine refuse alike, or the others would wait for the one that did
    with pytest.raises(GpudocError, match="doctor says: X"):
        check_device("auto", check=True, met=met(1), collect_facts=lambda: machine)


def test_others_on_the_gpu_stop_the_run_unless_told_to_share(cuda_works):
    other = GpuProcess(pid=2**22 + 7, alive=True, name="python", user="ann", sm_percent=90)
    busy = two_gpus(processes=(other,))
    with pytest.raises(GpudocError, match="other processes compute on cuda:0: ann's python") as caught:
        check_device("cuda:0", check=True, collect_facts=lambda: busy)
    assert caught.value.exit_code == 1
    assert "--shared" in caught.value.hint
    flight = check_device("cuda:0", check=True, shared=True, collect_facts=lambda: busy)
    assert any("ann's python" in said.text and said.warning for said in flight.said)
    assert check_device("cuda:1", check=True, collect_facts=lambda: busy).device == "cuda:1"
    # all ranks of a machine refuse alike
    with pytest.raises(GpudocError, match="other processes compute on cuda:0"):
        check_device("auto", check=True, met=met(1), collect_facts=lambda: busy)


def test_each_of_several_processes_has_the_gpu_of_its_number(cuda_works):
    def device(local_rank, asked="auto"):
        return check_device(asked, check=False, met=met(local_rank)).device

    assert [device(0), device(1)] == ["cuda:0", "cuda:1"]
    assert device(1, "cuda") == "cuda:1"
    with pytest.raises(GpudocError, match="2 processes and --device cuda:1 contradict"):
        device(0, "cuda:1")
    third = replace(met(1).place, rank=2, world=3, local_rank=2)
    with pytest.raises(GpudocError, match="process 3 of this machine has no GPU: torch sees 2"):
        check_device("auto", check=False, met=replace(met(1), place=third))
    assert device(1, "cpu") == "cpu"


def both(found, store):
    """What `found` makes of each of two processes of one machine, at the same time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda rank: found(met(rank, store)), range(2)))


@pytest.mark.parametrize("gpus", [0, 2])
def test_one_process_of_a_machine_asks_for_all(cuda_works, monkeypatch, gpus):
    asked = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(preflight, "collect_quickly", lambda: asked.append(1) or two_gpus(display_attached=True))
    first, second = both(preflight.collect_once, HashStore())
    assert first == second == two_gpus(display_attached=True)
    assert asked == [1]


def test_processes_that_see_a_gpu_each_ask_for_themselves(cuda_works, monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(preflight, "collect_quickly", lambda: asked.append(1) or two_gpus())
    both(preflight.collect_once, HashStore())
    assert asked == [1, 1]


def test_one_that_fails_to_ask_leaves_nobody_waiting(cuda_works, monkeypatch):
    def fail():
        raise GpudocError("no")

    monkeypatch.setattr(preflight, "collect_quickly", fail)
    store = HashStore()
    for rank in range(2):
        with pytest.raises(GpudocError, match="no"):
            preflight.collect_once(met(rank, store))


@pytest.mark.parametrize(("uuids", "device"), [("ab", "cuda:0"), ("aa", None)])
def test_the_only_gpu_of_each_process_is_its_own_unless_two_see_the_same(cuda_works, monkeypatch, uuids, device):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    seen = iter(uuids)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid=next(seen)))

    def taken(met):
        try:
            return check_device("auto", check=False, met=met).device
        except GpudocError as problem:
            return "no GPU: torch sees 1" in problem.message

    found = both(taken, HashStore())
    assert found == ([device, device] if device else ["cuda:0", True])


def test_a_slow_driver_stops_no_training(cuda_works):
    silent = Absent("no answer within 8 s: nvmlDeviceGetHandleByIndex")
    slow = replace(two_gpus(), gpus=silent, probe_failures={"nvml": silent.reason}, driver=Driver(nvml_code=silent))
    flight = check_device("auto", check=True, collect_facts=lambda: slow)
    assert flight.device.startswith("cuda")
    assert any("takes long to answer" in said.text and "nvidia-smi -pm 1" in said.text for said in flight.said)
