from __future__ import annotations

import pytest

from gpudoc.doctor.areas import AREAS, area_of, count_by_area
from gpudoc.doctor.registry import CATALOGUE


@pytest.mark.parametrize(
    ("cause", "area"),
    [
        ("gpu_ecc_error", "GPU"),
        ("pcie_link_degraded", "GPU"),
        ("driver_too_old", "driver"),
        ("driver_library_mismatch", "driver"),
        ("cpu_only_torch", "PyTorch"),
        ("gpu_newer_than_wheel_archs", "PyTorch"),
        ("container_toolkit_missing", "container"),
        ("oom_capacity", "memory"),
        ("gpu_memory_orphaned", "memory"),
        ("too_few_workers", "data"),
        ("nccl_p2p_hang", "network"),
        ("label_out_of_range", "program"),
        ("no_cause_at_all", "program"),
    ],
)
def test_causes_belong_to_the_area_that_a_reader_would_look_in(cause, area):
    assert area_of(cause) == area


def test_every_area_has_causes_and_counts_keep_their_order():
    counts = count_by_area(CATALOGUE)
    assert tuple(counts) == AREAS
    assert sum(counts.values()) == len(CATALOGUE)
    assert count_by_area(["oom_capacity", "gpu_ecc_error"]) == {"GPU": 1, "memory": 1}
