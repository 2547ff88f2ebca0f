"""AMD GPUs as their kernel driver shows them in /sys, without ROCm's own tools."""

from __future__ import annotations

from pathlib import Path

from gpudoc.facts.container import ROOT
from gpudoc.facts.files import link_name, list_names, read_int, read_text
from gpudoc.facts.model import Absent, Fact, Gpu, Link
from gpudoc.facts.topology import AMD
from gpudoc.patterns import Pattern

_CARDS = "sys/class/drm"
# transfer rate of a lane in GT/s -> generation
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


def collect(root: Path = ROOT) -> Fact[tuple[Gpu, ...]]:
    """AMD cards in the order of their numbers (`rocm-smi`); absent if the kernel shows no cards at all."""
    names = list_names(root, _CARDS)
    if isinstance(names, Absent):
        return names
    # card0-HDMI-A-1 is a connector of card0
    cards = sorted((name for name in names if Pattern(r"card\d+").fullmatch(name)), key=lambda name: int(name[4:]))
    ours = [name for name in cards if read_int(root, f"{_CARDS}/{name}/device/vendor") == AMD]
    return tuple(_read(root, f"{_CARDS}/{name}/device", index) for index, name in enumerate(ours))


def _read(root: Path, folder: str, index: int) -> Gpu:
    total, used = read_int(root, f"{folder}/mem_info_vram_total"), read_int(root, f"{folder}/mem_info_vram_used")
    known = not isinstance(total, Absent) and not isinstance(used, Absent)
    clock, most = _clocks(read_text(root, f"{folder}/pp_dpm_sclk"))
    return Gpu(
        index=index,
        name=read_text(root, f"{folder}/product_name"),
        pci_address=link_name(root, folder),
        memory_total_bytes=total,
        memory_used_bytes=used,
        memory_free_bytes=total - used if known else Absent("its memory is not known"),  # type: ignore[operator]
        utilization_percent=read_int(root, f"{folder}/gpu_busy_percent"),
        sm_clock_mhz=clock,
        sm_clock_max_mhz=most,
        link=Link(
            generation=_generation(read_text(root, f"{folder}/current_link_speed")),
            generation_max=_generation(read_text(root, f"{folder}/max_link_speed")),
            width=read_int(root, f"{folder}/current_link_width"),
            width_max=read_int(root, f"{folder}/max_link_width"),
        ),
        numa_node=read_int(root, f"{folder}/numa_node"),
        vbios=read_text(root, f"{folder}/vbios_version"),
    )


def _clocks(levels: Fact[str]) -> tuple[Fact[int], Fact[int]]:
    """The present and the highest clock, from lines like '1: 2100Mhz *'; the star marks the present one."""
    if isinstance(levels, Absent):
        return levels, levels
    rows = Pattern(r"(?<!\d)(\d+)\s*[mM][hH]z\s*(\*?)").findall(levels)
    unknown = Absent("no clock levels")
    now = next((int(number) for number, star in rows if star), None)
    return unknown if now is None else now, max((int(number) for number, _ in rows), default=unknown)


def _generation(speed: Fact[str]) -> Fact[int]:
    if isinstance(speed, Absent):
        return speed
    match = Pattern(r"\d+(?:\.\d+)?").match(speed)
    found = _GENERATIONS.get(float(match[0])) if match else None
    return Absent("the link's speed is not known") if found is None else found
