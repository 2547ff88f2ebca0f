"""What a program may take of a card: less where a display, the system or Windows' driver has a part in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoc.doctor.card_memory import share_of_card
from gpudoc.facts.model import CudaDevice, Driver, Host
from tests.machines.built import GIB, gpu, machine


def card(*, integrated=False, wsl=False, **facts):
    one = machine(gpu(0, memory_total_bytes=24 * GIB, **facts))
    driver = replace(
        one.driver, cuda_devices=(CudaDevice(ordinal=0, pci_address=one.gpus[0].pci_address, integrated=integrated),)
    )
    return replace(one, driver=driver, host=replace(one.host, wsl=wsl))


@pytest.mark.parametrize(
    ("facts", "share_gib", "why"),
    [
        ({}, 20, "what is free now"),
        ({"display_attached": True}, 18.8, "less 1.2 GiB for the display"),
        ({"wsl": True}, 20, "Windows' driver would continue in host memory"),
        ({"wsl": True, "display_attached": True}, 18.8, "for the display"),
        ({"integrated": True}, 10, "which this GPU shares with the system"),
        ({"integrated": True, "display_attached": True}, 10, "which this GPU shares with the system"),
    ],
)
def test_how_much_of_what_is_free(facts, share_gib, why):
    share = share_of_card(20 * GIB, 0, card(**facts))
    assert share.limit_bytes == pytest.approx(share_gib * GIB)
    assert why in share.why
    # where nothing is left out CUDA's own error is the limit
    assert share.is_enforced is bool(facts)


def test_a_gpu_of_which_nvml_tells_nothing_is_known_from_cuda():
    device = CudaDevice(ordinal=0, integrated=True)
    jetson = replace(machine(), gpus=(), driver=Driver(cuda_devices=(device,)), host=Host())
    assert share_of_card(8 * GIB, 0, jetson).limit_bytes == 4 * GIB


def test_a_small_card_is_not_left_to_its_display():
    assert share_of_card(GIB, 0, card(display_attached=True)).limit_bytes == GIB // 2
