from __future__ import annotations

import pytest

from gpudoc.facts import amd
from gpudoc.facts.model import Absent

GIB = 1 << 30
MI300 = {
    "vendor": "0x1002", "mem_info_vram_total": str(192 * GIB), "mem_info_vram_used": str(2 * GIB),
    "gpu_busy_percent": "37", "pp_dpm_sclk": "0: 132Mhz\n1: 1420Mhz *\n2: 2100Mhz\n",
    "current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe", "current_link_width": "8",
    "max_link_width": "16", "numa_node": "1", "product_name": "AMD Instinct MI300X", "vbios_version": "113-M3000100",
}  # fmt: skip


def card(root, number, address, **files):
    device = root / "sys/devices/pci0000:00" / address
    device.mkdir(parents=True)
    for name, text in files.items():
        (device / name).write_text(f"{text}\n")
    drm = root / f"sys/class/drm/card{number}"
    drm.mkdir(parents=True)
    (drm / "device").symlink_to(device)
    (root / f"sys/class/drm/card{number}-DP-1").mkdir()


def test_a_card_is_described_in_the_units_of_the_names(tmp_path):
    card(tmp_path, 1, "0000:83:00.0", **MI300)
    (gpu,) = amd.collect(tmp_path)
    assert (gpu.index, gpu.name, gpu.pci_address) == (0, "AMD Instinct MI300X", "0000:83:00.0")
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes, gpu.memory_free_bytes) == (192 * GIB, 2 * GIB, 190 * GIB)
    assert (gpu.utilization_percent, gpu.sm_clock_mhz, gpu.sm_clock_max_mhz) == (37, 1420, 2100)
    assert (gpu.link.generation, gpu.link.generation_max, gpu.link.width, gpu.link.width_max) == (5, 5, 8, 16)
    assert (gpu.numa_node, gpu.vbios) == (1, "113-M3000100")


def test_cards_of_others_are_left_out_and_the_rest_is_numbered_in_order(tmp_path):
    card(tmp_path, 10, "0000:c3:00.0", **MI300)
    card(tmp_path, 0, "0000:01:00.0", vendor="0x10de")
    card(tmp_path, 2, "0000:83:00.0", **MI300)
    assert [(g.index, g.pci_address) for g in amd.collect(tmp_path)] == [(0, "0000:83:00.0"), (1, "0000:c3:00.0")]


@pytest.mark.parametrize(
    "fact", ["memory_total_bytes", "memory_free_bytes", "utilization_percent", "sm_clock_mhz", "name"]
)
def test_what_a_card_does_not_show_is_absent_and_not_zero(tmp_path, fact):
    card(tmp_path, 0, "0000:83:00.0", vendor="0x1002")
    (gpu,) = amd.collect(tmp_path)
    assert isinstance(getattr(gpu, fact), Absent)
    assert isinstance(gpu.link.generation, Absent)


def test_clock_levels_without_a_star_tell_only_the_highest(tmp_path):
    card(tmp_path, 0, "0000:83:00.0", vendor="0x1002", pp_dpm_sclk="0: 500Mhz\n1: 1725Mhz")
    (gpu,) = amd.collect(tmp_path)
    assert isinstance(gpu.sm_clock_mhz, Absent)
    assert gpu.sm_clock_max_mhz == 1725


def test_without_cards_there_is_a_reason(tmp_path):
    assert isinstance(amd.collect(tmp_path), Absent)
