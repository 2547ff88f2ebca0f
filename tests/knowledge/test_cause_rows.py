from __future__ import annotations

from pathlib import Path

import pytest

from gpudoc.doctor.registry import CATALOGUE
from gpudoc.knowledge import cause_rows
from gpudoc.knowledge.cause_rows import (
    AREAS,
    area_of,
    areas,
    count_by_area,
    own_rows,
    parse_row,
    rows_by_area,
    ruled_out_by,
)
from gpudoc.knowledge.tables import parse_texts

FOLDER = Path(cause_rows.__file__).parent / "causes"


def test_every_row_of_every_file_is_cut_out_whole():
    for area, rows in own_rows().items():
        assert [parse_row(text) for text in rows.values()] == parse_texts((FOLDER / f"{area.lower()}.yaml").read_text())
    assert sorted(path.stem for path in FOLDER.glob("*.yaml")) == sorted(area.lower() for area in AREAS)


def test_no_cause_has_two_rows():
    names = [cause for rows in own_rows().values() for cause in rows]
    assert len(set(names)) == len(names) == len(areas())


def test_the_facts_that_rule_a_cause_out_are_those_of_its_row():
    rows = {cause: parse_row(text) for of_area in own_rows().values() for cause, text in of_area.items()}
    assert ruled_out_by() == {cause: tuple(row["ruled_out_by"]) for cause, row in rows.items() if "ruled_out_by" in row}


def test_rows_of_another_folder_are_read_as_they_are_written(tmp_path):
    for area in AREAS:
        rows = f"# what it is\n\n- id: {area}_one\n  why: 1.10\n\n- id: {area}_two\n"
        (tmp_path / f"{area.lower()}.yaml").write_text(rows, "utf-8")
    found = rows_by_area(tmp_path)
    assert list(found["driver"]) == ["driver_one", "driver_two"]
    assert parse_row(found["GPU"]["GPU_one"]) == {"id": "GPU_one", "why": "1.10"}


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
