from __future__ import annotations

from gpudoc.facts.model import Absent
from gpudoc.facts.readers import read

INFO = """NVRM version:   550.54.15
CUDA version:   12.4

Device Index:   0
Device Minor:   0
Model:          NVIDIA L4
Brand:          Nvidia
GPU UUID:       GPU-38ab400c-8953-69b1-5460-f70aefd40f8b
Bus Location:   00000000:0b:00.0
Architecture:   8.9

Device Index:   1
Device Minor:   1
Model:          NVIDIA T4
GPU UUID:       GPU-38ab400c-8953-69b1-5460-f70aefd40f8c
Bus Location:   00000000:0c:00.0
Architecture:   7.5
"""


def test_driver_and_gpus():
    reading = read(INFO)
    machine = reading.machine
    assert machine.driver.module_version == "550.54.15"
    assert machine.driver.cuda_version == (12, 4)
    assert [(g.index, g.name, g.capability, g.pci_address) for g in machine.gpus] == [
        (0, "NVIDIA L4", (8, 9), "00000000:0b:00.0"),
        (1, "NVIDIA T4", (7, 5), "00000000:0c:00.0"),
    ]
    assert "nvidia_container_cli" in reading.recognised


def test_with_its_own_log_around_it_and_without_values():
    noisy = "I0605 05:22:37.25 8689 nvc.c:376] initializing library context\n" + INFO.replace("\n", "\r\n")
    assert len(read(noisy).machine.gpus) == 2
    empty = "NVRM version:   (null)\nCUDA version:   10.0\n\nDevice Index:   0\nModel:          Xavier\nGPU UUID:       (null)\n"
    machine = read(empty).machine
    assert isinstance(machine.driver.module_version, Absent)
    assert machine.gpus[0].name == "Xavier"
