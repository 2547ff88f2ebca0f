"""How many multiply-adds a GPU does per cycle, and what its links carry; a value that the table lacks is None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from gpudoc.frozen import dataclass
from gpudoc.knowledge.tables import Row, read_table


@dataclass(frozen=True, slots=True)
class Rate:
    """Dense multiply-adds per cycle and SM, and the document that says so.

    `tensor_mhz` is the clock of the card's published peak if that is below its highest clock; else None.
    """

    fma_per_cycle: int
    source: str
    tensor_mhz: int | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """No rate, and why: an unknown capability, brand or number type."""

    because: str


def find_rate(
    capability: tuple[int, int], dtype: str, brand: str | None, device_id: int | None = None
) -> Rate | Unknown:
    """The rate for `dtype` ('fp32', 'tf32', 'fp16', 'bf16', 'fp8', 'int8') on a GPU of that capability and brand.

    `brand` is NVML's name for it (`nvidia-smi -q | grep Brand`); it decides if one capability has two classes.
    """
    name = f"{capability[0]}.{capability[1]}"
    rows = [row for row in read_table("tensor_rates.yaml", "rates") if row["capability"] == name]
    if not rows:
        return Unknown(f"compute capability {name} is not in the table of rates")
    row = _choose(rows, brand, device_id)
    if row is None:
        return Unknown(
            f"compute capability {name} has full and half rate cards, and the brand {brand!r} decides neither"
        )
    if dtype not in row:
        return Unknown(f"no rate is known for {dtype} on compute capability {name} ({row['class']} rate)")
    clock = _exception(device_id).get("tensor_mhz") if dtype != "fp32" else None
    return Rate(int(str(row[dtype])), str(row["source"]), None if clock is None else int(str(clock)))


def is_half_rate(capability: tuple[int, int], brand: str | None, device_id: int | None = None) -> bool:
    """Whether fp16 products are accumulated in fp32 at half the card's rate, as on GeForce cards."""
    wide = find_rate(capability, "fp16", brand, device_id)
    narrow = find_rate(capability, "fp16_acc16", brand, device_id)
    return isinstance(wide, Rate) and isinstance(narrow, Rate) and wide.fma_per_cycle < narrow.fma_per_cycle


def _choose(rows: Sequence[Row], brand: str | None, device_id: int | None) -> Row | None:
    by_class = {str(row["class"]): row for row in rows}
    own = by_class.get(str(_exception(device_id).get("class")))
    return own or by_class.get("any") or by_class.get(_class_of(brand))


def _exception(device_id: int | None) -> Row:
    for row in read_table("tensor_rates.yaml", "exceptions"):
        first, last = cast(list[int], row["device_ids"])
        if device_id is not None and first <= device_id <= last:
            return row
    return {}


def _class_of(brand: str | None) -> str:
    for row in read_table("tensor_rates.yaml", "classes"):
        if brand in cast(list[str], row["brands"]):
            return str(row["class"])
    return "unknown"


def pcie_gb_per_s(generation: int, width: int) -> float | None:
    """GB/s (10^9) in one direction after encoding, before packet headers; None for a generation not in the table."""
    for row in read_table("tensor_rates.yaml", "pcie"):
        if row["generation"] == generation:
            used, sent = cast(list[int], row["encoding"])
            return float(str(row["gt_per_s"])) * used / sent * width / 8
    return None


def pcie_formula(generation: int, width: int) -> str:
    """The formula of `pcie_gb_per_s` with its numbers; '' for a generation not in the table."""
    for row in read_table("tensor_rates.yaml", "pcie"):
        if row["generation"] == generation:
            used, sent = cast(list[int], row["encoding"])
            return f"PCIe Gen{generation} x{width}: {row['gt_per_s']} GT/s × {used}/{sent} × {width} lanes / 8"
    return ""


def nvlink_gb_per_s(capability: tuple[int, int]) -> float | None:
    """GB/s of one NVLink in one direction; None when the table does not know the capability's links."""
    name = f"{capability[0]}.{capability[1]}"
    rows = read_table("tensor_rates.yaml", "nvlink")
    return next((float(str(row["gb_per_s"])) for row in rows if row["capability"] == name), None)


def cpu_unit_fma_per_cycle(flags: frozenset[str], dtype: str) -> int | None:
    """Multiply-adds per cycle and core of a matrix unit that `flags` (`lscpu`) name; None without one."""
    rows = read_table("tensor_rates.yaml", "cpu_units")
    known = [int(str(row[dtype])) for row in rows if row["flag"] in flags and dtype in row]
    return max(known, default=None)
