"""Doctor is asked before the start; what breaks the device stops the run, with cause and fix."""

from __future__ import annotations

import pytest
import torch

from gpudoc.errors import GpudocError
from gpudoc.facts.model import Gpu, Machine, PciDevice
from gpudoc.train.preflight import check_device


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
